"""The picture at the top of the README: the report of a real run on SVHN, in a real browser.

    python tools/report_screenshot.py --data-dir FOLDER_WITH_SVHN

Trains a small network on 6,000 SVHN images with distorted labels (imbalance 10, noise 0.3) and
1,000 trusted ones, half an hour on a busy core; writes the report and photographs its first screen
with Chromium. ``--run`` keeps the run, and photographs one that is finished.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

import autodo
from autodo.commands.given import make_network
from autodo.data import stratified_split
from autodo.data.distort import Distortion
from autodo.data.sources import load
from autodo.models.registry import find
from autodo.report.page import write_report

TRAIN, TRUSTED, TEST = 6000, 1000, 5000
DISTORTION = "10-0.3"
WIDTH, HEIGHT = 1280, 1010


def make_run(data_dir: Path, run: Path, epochs: int) -> None:
    """A run of autodo.fit on part of SVHN."""
    whole, test = load("svhn", "train", data_dir=data_dir), load("svhn", "test", data_dir=data_dir)
    _, picked = stratified_split(whole.labels, TRAIN + TRUSTED, seed=0)
    part = whole.subset(picked)
    rest, chosen = stratified_split(part.labels, TRUSTED, seed=0)
    pool, trusted = part.subset(rest), part.subset(chosen)
    kept, noisy = Distortion.parse(DISTORTION).apply(pool.labels, pool.num_classes, 0)
    train = pool.subset(kept).with_labels(noisy)
    test = test.subset(stratified_split(test.labels, TEST, seed=0)[1])
    model = make_network(find("small_cnn"), train, seed=0)
    config = dataclasses.replace(autodo.Config(), epochs=epochs)
    autodo.fit(model, train, trusted, test=test, config=config, out=run, resume=True)


def photograph(page: Path, picture: Path) -> None:
    """The first screen of the page, half as large."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no Chromium was found; install it, for instance with apt install chromium")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--force-prefers-reduced-motion", f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={shot}", page.resolve().as_uri(),
            ],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        image = Image.open(shot).convert("RGB")
        size = (image.width * 3 // 4, image.height * 3 // 4)
        image = image.resize(size, Image.Resampling.LANCZOS)
        image.quantize(128).save(picture, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--run", type=Path, default=Path("runs/screenshot"))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--picture", type=Path, default=Path("docs/report.png"))
    args = parser.parse_args()
    make_run(args.data_dir, args.run, args.epochs)
    photograph(write_report(args.run, progress=True), args.picture)
    print(args.picture, args.picture.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
