"""Everything a run can be told, as data: one frozen dataclass, TOML in and out.

The defaults are the method as we recommend it; ``Config.paper()`` is the paper's, exact, for
reproduction. Validation happens at construction, so a Config that exists is a valid one.
"""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import tomli_w

from autodo.errors import InputError
from autodo.hyper.augment import KINDS
from autodo.hyper.dataset_model import PLACES
from autodo.hyper.optimizers import OPTIMIZERS, check_saves_memory
from autodo.hyper.relabel import STORAGES
from autodo.hyper.symmetry import SYMMETRIES
from autodo.implicit.solvers import ConjugateGradient, Identity, Neumann, Solver
from autodo.losses import LOSSES

SOLVERS = ("neumann", "cg", "identity")
CHOICES: dict[str, tuple[str, ...]] = {
    "augment": (*KINDS, "none"),
    "symmetry": ("auto", *SYMMETRIES),
    "loss": tuple(LOSSES),
    "solver": SOLVERS,
    "lambda_optimizer": tuple(OPTIMIZERS),
    "label_storage": STORAGES,
    "tables_on": PLACES,
    "precision": ("auto", "float32", "bfloat16"),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """How to train and what to learn of the dataset.

    >>> Config(epochs=10).epochs
    10
    >>> Config.from_toml(Config(epochs=7, augment="none").to_toml()) == Config(
    ...     epochs=7, augment="none")
    True
    """

    epochs: int = 60
    """Passes of the network over the training set; what ``belief_folds`` takes comes before, or, of
    rounds that are not needed, on top."""
    batch_size: int = 128
    """Points per training step; capped at the size of the set."""
    lr: float = 0.02
    """Peak learning rate of SGD with Nesterov momentum."""
    momentum: float = 0.9
    """Nesterov momentum."""
    weight_decay: float = 5e-4
    """On every parameter."""
    warmup_epochs: int = 5
    """Epochs in which the learning rate rises linearly from a tenth; then a cosine to 0.001."""

    augment: str = "affine"
    """Augmentation of training images: "affine", "colour", "affine+colour" or "none"."""
    policy: str = "none"
    """Augmentation by fixed rules before the learned one, such as "standard:cifar" or
    "randaugment:3,7+standard:svhn"; autodo.policies lists them."""
    symmetry: str = "auto"
    """Whether images are also mirrored ("mirror"), put upside down too ("flips"), and turned by
    quarters too ("turns"), in equal shares, or not ("none"). "auto" asks the first networks of
    ``belief_folds``: what they recognise nearly as well is used in all later ones."""
    shared_augment: bool = False
    """One augmentation row for all points (the paper's A_SHA) instead of one per point."""
    magnitude: float = 5.0
    """The augmentation's M: spreads are range * M/10 * sigmoid(A_m)."""
    learn_augment: bool = True
    """Learn A, how each point is augmented; otherwise its initial values stay."""
    learn_weights: bool = True
    """Learn W, how much each point counts."""
    learn_labels: bool = True
    """Learn S, what each label should be; otherwise labels are hard and the loss cross-entropy."""
    smoothing: float = 0.01
    """Label smoothing at the start of S: towards the mix of classes where ``prior_adjustment`` is
    above 0, so that no class gains by it, and as in the paper towards all equally otherwise."""
    loss: str = "kl"
    """Training loss on soft labels: "kl", "symmetric_kl" (the paper's) or "cross_entropy"."""

    belief_folds: int = 2
    """Networks that learn first, from the given labels and the trusted points, each without one of
    so many folds. What each believes of its own fold, which it has not seen, sets the labels to
    begin with. 0 is the paper's way: none."""
    belief_rounds: int = 2
    """How often networks do so, at the most; from the second round on they learn from the labels of
    the one before instead of the given ones. Where a round finds hardly a wrong label no other
    follows, and the last network takes the steps of the rest."""
    belief_epochs: int | None = None
    """Epochs of each of those networks, over the folds it sees; None is as many as ``epochs``, so
    that a round takes (folds - 1) times the steps of the training that follows."""
    common_epochs: int = 0
    """Epochs of the first round in which its networks are still one, which learns from all points;
    then each goes on without its fold. At most a quarter of them: so soon, at a high rate, nothing
    is learned of single labels that would be left in the end, and all networks know more."""
    warm_start: bool = True
    """Networks of a later round go on from the weights of the one that left out the same fold in
    the round before, the last network from those of the last of them; otherwise each starts from
    the initial weights."""
    belief_share: float = 0.5
    """How much of the belief behind a label is, in the end, that of the last network itself, an
    average over its epochs and augmentations from E on in which late ones count more; 0 leaves the
    labels to the hypergradient. Where no noise was seen in the given labels it changes nothing."""
    trusted_joins_training: bool = True
    """The trusted points are trained on too, with weight 1 and their own labels."""
    balanced_batches: bool = False
    """Draw training points with replacement, every class equally often by its given label."""
    prior_adjustment: float = 1.0
    """tau of the logit adjustment: tau * log(class share in training / in trusted) is added
    to the logits inside the training loss, so that rare classes do not look like noise."""

    start_epoch: int | None = None
    """E, the epoch (of ``epochs``) after which lambda is learned; None is a quarter of them."""
    lambda_optimizer: str = "table"
    """"table": one running scale per table; "rmsprop": the paper's, one per coordinate."""
    augment_lr: float = 0.02
    """Rate of A."""
    weight_lr: float = 0.02
    """Rate of W."""
    label_lr: float = 0.005
    """Rate of S."""
    label_storage: str = "float32"
    """Of S: "float32"; "bfloat16", half the memory, rounded at random; "top-k", the logits of
    label_top classes and one for all others."""
    label_top: int = 8
    """Classes that "top-k" keeps of each label, the given one among them."""
    tables_on: str = "device"
    """"device", or "host": lambda stays in pinned host memory, which a CUDA device reads."""
    lambda_schedule: bool = True
    """The rates of lambda follow the schedule of the learning rate, counted from E."""
    hyper_batch_size: int = 256
    """Training and trusted points of one hyper step; capped at the sizes of the sets."""
    hyper_every: int = 1
    """Hyper steps only on every k-th hyper batch of an epoch."""
    trusted_points: int = 2048
    """Trusted points that the hyper steps of an epoch follow, drawn anew for each epoch; no more
    than there are, and than a quarter of the training points those steps visit."""
    trusted_every: int | None = None
    """Hyper steps that follow one trusted batch instead of all of those; 1 is the paper's way."""
    solver: str = "neumann"
    """Of the inverse-Hessian product: "neumann", "cg" or "identity"."""
    solver_steps: int = 5
    """Terms of the Neumann series, or iterations of conjugate gradients."""
    solver_alpha: float | str = "auto"
    """Step of the Neumann series; "auto" measures the Hessian's largest eigenvalue."""
    solver_damping: float = 1e-2
    """Added to the Hessian by conjugate gradients."""

    seed: int = 0
    """Of everything random."""
    device: str = "auto"
    """"auto" (CUDA if there is one), "cpu", "cuda", "cuda:1" ..."""
    precision: str = "auto"
    """"auto": bfloat16 autocast on CUDA, float32 elsewhere."""
    cuda_graphs: bool = True
    """Record steps on CUDA and replay them; off for networks that cannot be recorded."""
    num_workers: int = 0
    """Processes that read a dataset which is not held in memory."""
    checkpoint_every: int | None = None
    """Epochs between checkpoints: what a kill can cost. None: every epoch, but of those that take
    long to write as many as cost 2% of the time."""
    measure_every: int = 1
    """Epochs between measurements on the trusted and the test set; the last of a network is always
    measured. It changes nothing else: no measurement chooses anything."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not _has_type(value, _types()[field.name]):
                raise InputError(
                    f"{field.name} is {value!r}",
                    f"it must be of type {_type_name(_types()[field.name])}",
                    f"the default is {field.default!r}",
                )
            if field.name in CHOICES and value not in CHOICES[field.name]:
                raise InputError(
                    f"{field.name} is {value!r}",
                    f"the choices are {', '.join(CHOICES[field.name])}",
                    f"the default is {field.default!r}",
                )
        for names, low in _LOWER_BOUNDS.items():
            for name in names:
                value = getattr(self, name)
                if value is not None and not value >= low:
                    raise InputError(
                        f"{name} is {value!r}", f"it must be {low} or more", "correct it"
                    )
        if not 0 < self.smoothing < 1:
            raise InputError(
                f"smoothing is {self.smoothing}", "it must lie between 0 and 1", "use 0.01"
            )
        for name in ("momentum", "belief_share"):
            value, usual = getattr(self, name), getattr(Config, name)
            if not 0 <= value < 1:
                raise InputError(
                    f"{name} is {value}", "it must be at least 0 and below 1", f"use {usual}"
                )
        if self.belief_folds == 1:
            raise InputError(
                "belief_folds is 1",
                "a network without one of one fold would learn from nothing",
                "use 2, or 0 for none",
            )
        if self.label_storage != "float32":
            check_saves_memory(self.lambda_optimizer, f"labels stored as {self.label_storage}")
        if self.tables_on == "host":
            check_saves_memory(self.lambda_optimizer, "tables on the host")
        if self.augment == "none" and self.symmetry not in ("auto", "none"):
            raise InputError(
                f"symmetry is {self.symmetry!r} and augment is 'none'",
                "symmetries are part of the augmentation, and there is none",
                'use symmetry="none", or augment="affine"',
            )
        self.make_solver()

    @classmethod
    def paper(cls, **changes: Any) -> Config:
        """The paper's protocol: its loss, optimizer, solver, schedule and rates (appendix A)."""
        values: dict[str, Any] = {
            "epochs": 200,
            "batch_size": 256,
            "lr": 0.1,
            "weight_decay": 1e-4,
            "symmetry": "none",
            "loss": "symmetric_kl",
            "smoothing": 0.1,
            "belief_folds": 0,
            "common_epochs": 0,
            "trusted_joins_training": False,
            "prior_adjustment": 0.0,
            "start_epoch": 50,
            "lambda_optimizer": "rmsprop",
            "augment_lr": 0.05,
            "weight_lr": 0.05,
            "label_lr": 0.05,
            "solver_alpha": 0.01,
            "trusted_every": 1,
        }
        return cls(**{**values, **changes})

    @property
    def learns(self) -> tuple[str, ...]:
        """The tables that hyper steps move."""
        wanted = {
            "augment": self.learn_augment and self.augment != "none",
            "weight": self.learn_weights,
            "label": self.learn_labels,
        }
        return tuple(name for name, on in wanted.items() if on)

    @property
    def follows(self) -> bool:
        """Whether labels follow the last network's own belief while it learns."""
        return self.learn_labels and self.belief_folds > 0 and self.belief_share > 0

    @property
    def finds_symmetry(self) -> bool:
        """Whether networks that leave out a fold say which symmetries images have."""
        return self.symmetry == "auto" and "augment" in self.learns and self.epochs_before > 0

    @property
    def epochs_before(self) -> int:
        """Epochs of the networks whose belief the labels begin with, at the most, all together."""
        if not self.learn_labels:
            return 0
        each = self.belief_epochs or self.epochs
        return self.belief_rounds * self.belief_folds * each

    @property
    def hyper_epochs(self) -> int:
        """Epochs of the last network in which lambda is learned: all after E."""
        start = self.epochs // 4 if self.start_epoch is None else self.start_epoch
        return max(0, self.epochs - start)

    def make_solver(self) -> Solver:
        """The solver that the fields describe."""
        if self.solver == "neumann":
            return Neumann(self.solver_steps, self.solver_alpha)
        if self.solver == "cg":
            return ConjugateGradient(self.solver_steps, self.solver_damping)
        return Identity()

    def to_toml(self) -> str:
        """TOML; fields that are None are left out."""
        values = dataclasses.asdict(self)
        return tomli_w.dumps({k: v for k, v in values.items() if v is not None})

    @classmethod
    def from_toml(cls, text: str) -> Config:
        """The Config written in TOML; fields that are left out have their defaults."""
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise InputError("the configuration is not TOML", str(error), "correct it") from error

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Config:
        """The Config with these fields."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InputError(
                f"the configuration has no field {unknown[0]!r}",
                "it is misspelt, or from another version",
                f"the fields are {', '.join(sorted(known))}",
            )
        hints = _types()
        # TOML writes 1.0 as a float but people write 1.
        fixed: dict[str, Any] = {
            k: float(v) if isinstance(v, int) and hints[k] is float and v is not True else v
            for k, v in values.items()
        }
        return cls(**fixed)

    @classmethod
    def load(cls, path: str | Path) -> Config:
        """The Config in a TOML file."""
        path = Path(path)
        if not path.is_file():
            raise InputError(
                f"there is no configuration file {path}", "the path is wrong", "check it"
            )
        return cls.from_toml(path.read_text(encoding="utf-8"))


_LOWER_BOUNDS: dict[tuple[str, ...], float] = {
    (
        "epochs",
        "batch_size",
        "hyper_batch_size",
        "hyper_every",
        "trusted_every",
        "trusted_points",
        "checkpoint_every",
        "measure_every",
        "belief_rounds",
        "belief_epochs",
    ): 1,
    ("label_top",): 2,
    ("lr", "augment_lr", "weight_lr", "label_lr", "weight_decay", "magnitude"): 0,
    (
        "warmup_epochs",
        "seed",
        "num_workers",
        "prior_adjustment",
        "start_epoch",
        "belief_folds",
        "common_epochs",
    ): 0,
}


def _types() -> dict[str, Any]:
    return get_type_hints(Config)


def _has_type(value: Any, hint: Any) -> bool:
    options = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    if isinstance(value, bool):
        return bool in options
    if isinstance(value, int) and float in options:
        return True
    return isinstance(value, options)


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("None", "nothing")
