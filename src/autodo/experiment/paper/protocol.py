"""How the paper ran a cell: appendix A, and the published figures that it leaves out.

:func:`settings` turns a cell into a Config, :func:`policy` into the fixed augmentation that
comes before the learned one. A :class:`Scale` shrinks both for a trial on a small machine; its
numbers are then not the paper's, and every page that shows them says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autodo.config import Config
from autodo.errors import InputError
from autodo.experiment.paper.cells import METHODS, Cell

EPOCHS, WARMUP_EPOCHS = 200, 5


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What the paper fixes for one data set."""

    network: str
    lr: float
    """Of SGD."""
    lambda_lr: float = 0.05
    """Of RMSprop on lambda, all three tables."""
    start_epoch: int = 50
    """E."""
    hyper_batch_size: int = 256
    standard: str
    """Standard augmentation, of every method."""
    randaugment: str
    """All operations, the RAA row."""
    colour: str
    """AutoDO's share of RandAugment: without the geometric operations, which are learned."""
    crop: int | None = None
    """The centre of an image that the network sees when it is tested."""


PROTOCOLS = {
    "svhn": Protocol(
        network="wrn-28-10",
        lr=0.005,
        standard="standard:svhn",
        randaugment="randaugment:3,7",
        colour="randaugment:3,7,colour",
    ),
    "cifar10": Protocol(
        network="wrn-28-10",
        lr=0.1,
        standard="standard:cifar",
        randaugment="randaugment:3,15",
        colour="randaugment:1,15,colour",
    ),
    "imagenet": Protocol(
        network="resnet18",
        lr=0.1,
        lambda_lr=0.01,
        start_epoch=100,
        hyper_batch_size=128,
        standard="standard:imagenet",
        randaugment="randaugment:2,9",
        colour="randaugment:2,9,colour",
        crop=224,
    ),
}
PROTOCOLS["cifar100"] = PROTOCOLS["cifar10"]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of a cell is run; whatever is None is the paper's."""

    name: str
    network: str | None = None
    image_size: int | None = None
    classes: int | None = None
    """At most so many classes, evenly spaced over all of them."""
    train: int | None = None
    """Points of the training set before the distortion."""
    trusted: int | None = None
    test: int | None = None
    epochs: int = EPOCHS
    batch_size: int = 256
    lr: float | None = None
    embedded: int = 2000
    """Test points whose features are kept for t-SNE."""

    @property
    def is_full(self) -> bool:
        return self == FULL

    def epoch(self, paper: int) -> int:
        """An epoch of the paper's 200, moved in proportion and kept inside the run.

        >>> SMALL.epochs, SMALL.epoch(50), SMALL.epoch(190), FULL.epoch(190)
        (10, 2, 9, 190)
        """
        return min(round(paper * self.epochs / EPOCHS), self.epochs - 1)


FULL = Scale(name="full")
SMALL = Scale(
    name="small",
    network="small_cnn",
    image_size=16,
    # A hundredfold imbalance must leave some points of every rare class.
    classes=10,
    train=6000,
    trusted=1000,
    test=2000,
    epochs=10,
    # The paper's batches are for 40,000 steps; smaller ones make about a thousand of ten epochs.
    # The rate is the library's default. Neither was chosen by a result.
    batch_size=32,
    lr=Config().lr,
    embedded=500,
)
SCALES = {scale.name: scale for scale in (FULL, SMALL)}


def settings(
    cell: Cell,
    *,
    scale: Scale = FULL,
    seed: int = 0,
    device: str = "auto",
    policy: str = "none",
    measure_every: int = 1,
    trusted_every: int = 1,
) -> Config:
    """The Config of one run of a cell.

    ``Config.paper`` has what all cells share: SGD with Nesterov momentum 0.9, weight decay 1e-4,
    batch 256, the cosine after 5 warm-up epochs, T = 5 terms of the Neumann series, RMSprop.
    Appendix A's alpha = 0.1 is the smoothing of the initial labels. The step of the series,
    also called alpha, is not in the paper; 0.01 is the published code's.
    """
    learns = METHODS[cell.method].startswith("AutoDO")
    protocol = PROTOCOLS[cell.dataset]
    return Config.paper(
        epochs=scale.epochs,
        batch_size=scale.batch_size,
        warmup_epochs=scale.epoch(WARMUP_EPOCHS),
        lr=protocol.lr if scale.lr is None else scale.lr,
        augment="affine" if learns else "none",
        shared_augment=cell.method == "sha",
        learn_augment=learns,
        learn_weights=cell.method in ("aw", "aws"),
        learn_labels=cell.method == "aws",
        # Symmetric only against wrong or rare labels; on undistorted sets the plain KL.
        loss="kl" if cell.distortion == "1-0.0" else "symmetric_kl",
        start_epoch=scale.epoch(cell.start_epoch or protocol.start_epoch),
        augment_lr=protocol.lambda_lr,
        weight_lr=protocol.lambda_lr,
        label_lr=protocol.lambda_lr,
        hyper_batch_size=protocol.hyper_batch_size,
        solver_steps=5,
        seed=seed,
        device=device,
        policy=policy,
        measure_every=measure_every,
        trusted_every=trusted_every,
    )


def policy(cell: Cell, *, scale: Scale = FULL, policy_file: str | Path | None = None) -> str:
    """The fixed augmentation of a cell, as ``autodo.policies.get`` reads it.

    >>> from autodo.experiment.paper.cells import find
    >>> policy(find("cifar10", "1-0.0", "aws"))
    'randaugment:1,15,colour+standard:cifar'
    """
    protocol = PROTOCOLS[cell.dataset]
    # Stored smaller, ImageNet has no 224 pixels to cut out: it is cropped as CIFAR is.
    shrunk = protocol.crop is not None and scale.image_size is not None
    standard = "standard:cifar" if shrunk else protocol.standard
    if cell.method == "baseline":
        return standard
    if cell.method == "raa":
        return f"{protocol.randaugment}+{standard}"
    if cell.method in ("faa", "dada"):
        path = str(_policy_path(cell, policy_file)).replace("+", "++")
        return f"file:{path}+{standard}"
    return f"{protocol.colour}+{standard}"


def _policy_path(cell: Cell, given: str | Path | None) -> Path:
    cure = (
        f"give the published policy for {cell.dataset} with --policy-file FILE: JSON with the keys "
        "ranges {op: [low, high]} and subpolicies [[[op, probability, level], ...], ...]"
    )
    if given is None:
        raise InputError(
            f"{cell.name} needs a policy file",
            f"it is {METHODS[cell.method]}, which was searched elsewhere and is read from a file",
            cure,
        )
    path = Path(given)
    if not path.is_file():
        raise InputError(
            f"there is no policy file '{path}'", "the path is wrong, or it is a folder", cure
        )
    return path
