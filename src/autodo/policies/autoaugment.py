"""AutoAugment's published policies for CIFAR-10, SVHN and ImageNet, 25 sub-policies each.

A magnitude is one of ten, 0 .. 9, evenly spaced over the range of its operation as torchvision
reads the paper: from what changes nothing to the strongest, with a random sign for geometric
operations and for the factors about 1. Translations are by the nearest whole pixel.
"""

from __future__ import annotations

from autodo.policies.operations import NEUTRAL
from autodo.policies.subpolicies import Entry, SubPolicies

STRONGEST = {
    "ShearX": 0.3,
    "ShearY": 0.3,
    "TranslateX": 150 / 331,  # of the width
    "TranslateY": 150 / 331,  # of the height
    "Rotate": 30.0,  # degrees
    "Brightness": 1.9,
    "Color": 1.9,
    "Contrast": 1.9,
    "Sharpness": 1.9,
}
"""The value at magnitude 9, where the one at 0 changes nothing and both sides of it are drawn.

Solarize goes from the threshold 255 to 0, Posterize from 8 bits to 4."""

# One sub-policy a line: operation, probability, magnitude; "-" where there is no magnitude.
CIFAR = """
Invert 0.1 -, Contrast 0.2 6
Rotate 0.7 2, TranslateX 0.3 9
Sharpness 0.8 1, Sharpness 0.9 3
ShearY 0.5 8, TranslateY 0.7 9
AutoContrast 0.5 -, Equalize 0.9 -
ShearY 0.2 7, Posterize 0.3 7
Color 0.4 3, Brightness 0.6 7
Sharpness 0.3 9, Brightness 0.7 9
Equalize 0.6 -, Equalize 0.5 -
Contrast 0.6 7, Sharpness 0.6 5
Color 0.7 7, TranslateX 0.5 8
Equalize 0.3 -, AutoContrast 0.4 -
TranslateY 0.4 3, Sharpness 0.2 6
Brightness 0.9 6, Color 0.2 8
Solarize 0.5 2, Invert 0.0 -
Equalize 0.2 -, AutoContrast 0.6 -
Equalize 0.2 -, Equalize 0.6 -
Color 0.9 9, Equalize 0.6 -
AutoContrast 0.8 -, Solarize 0.2 8
Brightness 0.1 3, Color 0.7 0
Solarize 0.4 5, AutoContrast 0.9 -
TranslateY 0.9 9, TranslateY 0.7 9
AutoContrast 0.9 -, Solarize 0.8 3
Equalize 0.8 -, Invert 0.1 -
TranslateY 0.7 9, AutoContrast 0.9 -
"""

SVHN = """
ShearX 0.9 4, Invert 0.2 -
ShearY 0.9 8, Invert 0.7 -
Equalize 0.6 -, Solarize 0.6 6
Invert 0.9 -, Equalize 0.6 -
Equalize 0.6 -, Rotate 0.9 3
ShearX 0.9 4, AutoContrast 0.8 -
ShearY 0.9 8, Invert 0.4 -
ShearY 0.9 5, Solarize 0.2 6
Invert 0.9 -, AutoContrast 0.8 -
Equalize 0.6 -, Rotate 0.9 3
ShearX 0.9 4, Solarize 0.3 3
ShearY 0.8 8, Invert 0.7 -
Equalize 0.9 -, TranslateY 0.6 6
Invert 0.9 -, Equalize 0.6 -
Contrast 0.3 3, Rotate 0.8 4
Invert 0.8 -, TranslateY 0.0 2
ShearY 0.7 6, Solarize 0.4 8
Invert 0.6 -, Rotate 0.8 4
ShearY 0.3 7, TranslateX 0.9 3
ShearX 0.1 6, Invert 0.6 -
Solarize 0.7 2, TranslateY 0.6 7
ShearY 0.8 4, Invert 0.8 -
ShearX 0.7 9, TranslateY 0.8 3
ShearY 0.8 5, AutoContrast 0.7 -
ShearX 0.7 2, Invert 0.1 -
"""

IMAGENET = """
Posterize 0.4 8, Rotate 0.6 9
Solarize 0.6 5, AutoContrast 0.6 -
Equalize 0.8 -, Equalize 0.6 -
Posterize 0.6 7, Posterize 0.6 6
Equalize 0.4 -, Solarize 0.2 4
Equalize 0.4 -, Rotate 0.8 8
Solarize 0.6 3, Equalize 0.6 -
Posterize 0.8 5, Equalize 1.0 -
Rotate 0.2 3, Solarize 0.6 8
Equalize 0.6 -, Posterize 0.4 6
Rotate 0.8 8, Color 0.4 0
Rotate 0.4 9, Equalize 0.6 -
Equalize 0.0 -, Equalize 0.8 -
Invert 0.6 -, Equalize 1.0 -
Color 0.6 4, Contrast 1.0 8
Rotate 0.8 8, Color 1.0 2
Color 0.8 8, Solarize 0.8 7
Sharpness 0.4 7, Invert 0.6 -
ShearX 0.6 5, Equalize 1.0 -
Color 0.4 0, Equalize 0.6 -
Equalize 0.4 -, Solarize 0.2 4
Solarize 0.6 5, AutoContrast 0.6 -
Invert 0.6 -, Equalize 1.0 -
Color 0.6 4, Contrast 1.0 8
Equalize 0.8 -, Equalize 0.6 -
"""


def _entry(text: str) -> Entry:
    """One operation of the tables above."""
    name, probability, magnitude = text.split()
    if magnitude == "-":
        return Entry(name, float(probability), 0.0, False)
    share = int(magnitude) / 9
    if name == "Posterize":
        value = 8.0 - round(4 * share)
    elif name == "Solarize":
        value = 255 * (1 - share)
    else:
        value = NEUTRAL[name] + share * (STRONGEST[name] - NEUTRAL[name])
    return Entry(name, float(probability), value, name in STRONGEST)


def _policy(name: str, table: str) -> SubPolicies:
    rows = (line.split(",") for line in table.strip().splitlines())
    return SubPolicies(f"autoaugment:{name}", tuple(tuple(map(_entry, row)) for row in rows))


PUBLISHED = {
    "cifar": _policy("cifar", CIFAR),
    "svhn": _policy("svhn", SVHN),
    "imagenet": _policy("imagenet", IMAGENET),
}
"""The policies by dataset; CIFAR-10's serves CIFAR-100 too."""
