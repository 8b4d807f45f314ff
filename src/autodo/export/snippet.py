"""What AutoDO learned of a training set, for any PyTorch training loop.

This file reads lambda.safetensors, which lies beside it, and needs torch and safetensors only;
``augment`` also needs autodo. ``dataset`` is the training set of the run, (image, label) in the
same order; its labels are replaced by the learned ones.

    learned = Learned()
    loader = DataLoader(learned.indexed(dataset), batch_size=128, shuffle=True)
    for images, index in loader:
        images = learned.augment(images, index)      # pixels as floats in [0, 1]
        loss = learned.loss(model(images), index)
        ...
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor
from torch.utils.data import Dataset


class Learned:
    """Weights, soft labels and augmentation of N training examples."""

    def __init__(self, path: str | Path | None = None, device: str = "cpu") -> None:
        path = Path(__file__).with_name("lambda.safetensors") if path is None else Path(path)
        with safe_open(path, "pt", device=device) as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        labels = tensors["labels"]
        self.weights = torch.ones(len(labels), device=device)
        """(N,): how much each example counts, 1 at the start, 0 if it is not to be used."""
        if "weight_logits" in tensors:
            self.weights = F.softplus(tensors["weight_logits"]) / math.log(2)
        self.soft_labels = F.one_hot(labels, int(about["num_classes"])).float()
        """(N, C): the learned probability of each class."""
        if "label_logits" in tensors:
            self.soft_labels = tensors["label_logits"].softmax(-1)
        self.usable = torch.nonzero(self.weights > 1e-9)[:, 0].tolist()
        """The examples to train on."""
        self._rows = tensors.get("augment_rows")
        self._kind, self._magnitude = about["augment"], float(about["magnitude"])
        self._symmetry = about.get("symmetry", "none")

    def indexed(self, dataset: Any) -> Dataset:
        """The usable examples of ``dataset`` as (image, index)."""
        if len(dataset) != len(self.weights):
            raise ValueError(
                f"the dataset has {len(dataset)} examples, the run had {len(self.weights)}"
            )
        return _Indexed(dataset, self.usable)

    def augment(
        self, images: Tensor, index: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Images (B, C, H, W), each augmented as was learned for it."""
        if self._rows is None:
            return images
        from autodo.hyper.augment import Augment
        from autodo.hyper.symmetry import SYMMETRIES, turn

        images = turn(images, SYMMETRIES.index(self._symmetry), generator)
        rows = self._rows if len(self._rows) == 1 else self._rows[index]
        return Augment(self._kind, self._magnitude)(images, rows.to(images.device), generator)

    def loss(self, logits: Tensor, index: Tensor) -> Tensor:
        """Mean over the batch of weight times cross-entropy with the soft label."""
        weights, labels = (x[index].to(logits) for x in (self.weights, self.soft_labels))
        return (weights * F.cross_entropy(logits, labels, reduction="none")).mean()


class _Indexed(Dataset):
    def __init__(self, dataset: Any, index: list[int]) -> None:
        self.dataset, self.index = dataset, index

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return self.dataset[self.index[i]][0], self.index[i]
