"""Features of CIFAR-10's training images by a small network trained on CIFAR-10N's labels.

    python benchmarks/audit_features.py --cifar CIFAR --labels cifar10n_labels.npz --out FEATURES

CIFAR is a folder in any layout that ``autodo.data.sources.load`` reads. For each of --key writes
FEATURES/KEY.npy, (50000, 256) of float32: two epochs on the labels of people, about two
minutes each on one core. Files that are there already are left.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autodo.data.label_file import read_labels
from autodo.data.sources import load
from autodo.models.normalize import Normalize

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
BATCH, PEAK, WARM = 128, 0.1, 0.2
"""Images per step; the learning rate rises to PEAK over the first WARM of the steps, then falls."""


def network(classes: int) -> tuple[nn.Module, nn.Linear]:
    """Four convolutions, three poolings, the largest value of each of 256 channels; and a head."""
    layers: list[nn.Module] = [Normalize.of(3, MEAN, STD)]
    widths = (3, 32, 64, 128, 256)
    for inputs, outputs in itertools.pairwise(widths):
        pool = nn.MaxPool2d(2) if outputs < widths[-1] else nn.AdaptiveMaxPool2d(1)
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(outputs), nn.CELU(), pool]
    return nn.Sequential(*layers, nn.Flatten()), nn.Linear(widths[-1], classes)


def features(images: Tensor, labels: Tensor, epochs: int, seed: int) -> tuple[Tensor, Tensor]:
    """Features (N, 256) of uint8 images (N, 3, 32, 32), and the class the network sees (N,)."""
    torch.manual_seed(seed)
    encoder, head = network(int(labels.max()) + 1)
    model = nn.Sequential(encoder, head).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=PEAK, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    per_epoch = len(images) // BATCH
    total, start = epochs * per_epoch, time.perf_counter()
    for step in range(total):
        if step % per_epoch == 0:
            order = torch.randperm(len(images)).split(BATCH)
        index = order[step % per_epoch]
        rate = PEAK * min((step + 1) / (WARM * total), (total - step) / ((1 - WARM) * total))
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = images[index].float() / 255
        flipped = torch.rand(len(batch)) < 0.5
        batch[flipped] = batch[flipped].flip(-1)
        logits = model(batch.contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(logits, labels[index], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 200 == 0:
            seconds = time.perf_counter() - start
            print(f"step {step + 1}/{total}: loss {loss.item():.3f}, {seconds:.0f} s", flush=True)
    model.eval()
    with torch.no_grad():
        parts = [encoder(part.float() / 255) for part in images.split(500)]
        found = torch.cat(parts)
        return found, head(found).argmax(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar", type=Path, required=True)
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--key", nargs="+", default=["worse_label", "aggre_label", "random_label1"])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    cifar = load(args.cifar, "train")
    for key in args.key:
        target = args.out / f"{key}.npy"
        if target.exists():
            continue
        given = read_labels(args.labels, key)
        found, seen = features(cifar.images, given, args.epochs, args.seed)
        right = (seen == cifar.labels).float().mean()
        print(f"{key}: the network agrees with the truth on {right:.1%} of the images")
        np.save(target, found.numpy())


if __name__ == "__main__":
    main()
