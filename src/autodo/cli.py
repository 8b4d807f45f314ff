"""The command line: arguments in, a run and a short summary out.

Nothing is learned here. Torch and everything built on it are imported inside the commands, so
that ``--help`` and misspelt options answer at once. What a user can mend is printed as fact,
cause and cure with exit code 2; a traceback always means a bug in autodo.
"""

from __future__ import annotations

from typing import Annotated

import typer

from autodo.auditing import command as audit_command
from autodo.commands import bench, compare, demo, fit
from autodo.commands.telling import telling
from autodo.experiment.paper import command as paper_command
from autodo.export import command as export_command
from autodo.report import command as report_command
from autodo.review import command as review_command

app = typer.Typer(
    name="autodo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The console script ``autodo``."""
    app(prog_name="autodo")


def _version(wanted: bool) -> None:
    if wanted:
        import autodo

        typer.echo(f"autodo {autodo.__version__}")
        raise typer.Exit


@app.callback(epilog="Example, a minute on a laptop:\n\n  autodo demo")
def _autodo(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version.")
    ] = False,
) -> None:
    """Learn from a small trusted set how to augment, weigh and relabel every training image."""


app.command(epilog=fit.EXAMPLES)(fit.fit)  # it says itself how a run is taken up again
for command, examples, interrupted in (
    (demo.demo, demo.EXAMPLES, "autodo demo starts anew"),
    (compare.compare, compare.EXAMPLES, compare.Again()),
    (audit_command.audit, audit_command.EXAMPLES, "nothing was written"),
    (report_command.report, report_command.EXAMPLES, "no report was written"),
    (review_command.review, review_command.EXAMPLES, "nothing was decided"),
    (export_command.export, export_command.EXAMPLES, "nothing was exported"),
    (
        paper_command.paper,
        paper_command.EXAMPLES,
        "the same command goes on with the last whole epoch",
    ),
    (bench.bench, bench.EXAMPLES, "nothing was written"),
):
    app.command(epilog=examples)(telling(command, interrupted))
