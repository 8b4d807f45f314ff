"""The slow oracle: Pillow, one image at a time, called as the published policies call it."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor

from autodo.policies.operations import NAMES, Steps

CUTOUT_RGB, CUTOUT_GREY = (125, 123, 114), 123


def solarize_add(image: Image.Image, value: float) -> Image.Image:
    levels = np.asarray(image).astype(int)
    added = np.where(levels < 128, np.clip(levels + int(value), 0, 255), levels)
    return Image.fromarray(added.astype(np.uint8))


def cutout(image: Image.Image, value: float, place: tuple[float, float]) -> Image.Image:
    if value <= 0:
        return image
    (width, height), side = image.size, value * image.size[0]
    left = int(max(0, place[0] * width - side / 2))
    top = int(max(0, place[1] * height - side / 2))
    box = (left, top, min(width, left + side), min(height, top + side))
    image = image.copy()
    ImageDraw.Draw(image).rectangle(box, CUTOUT_RGB if image.mode == "RGB" else CUTOUT_GREY)
    return image


def affine(image: Image.Image, *coefficients: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients)


def operate(image: Image.Image, name: str, value: float, place=(0.5, 0.5)) -> Image.Image:
    """One operation on one image of mode L or RGB: nearest pixel, black outside."""
    width, height = image.size
    match name:
        case "Identity":
            return image
        case "Rotate":
            return image.rotate(value)
        case "ShearX":
            return affine(image, 1, value, 0, 0, 1, 0)
        case "ShearY":
            return affine(image, 1, 0, 0, value, 1, 0)
        case "TranslateX":
            return affine(image, 1, 0, value * width, 0, 1, 0)
        case "TranslateY":
            return affine(image, 1, 0, 0, 0, 1, value * height)
        case "Flip":
            return ImageOps.mirror(image)
        case "Invert":
            return ImageOps.invert(image)
        case "Posterize":
            return ImageOps.posterize(image, int(value))
        case "Solarize":
            return ImageOps.solarize(image, value)
        case "SolarizeAdd":
            return solarize_add(image, value)
        case "AutoContrast":
            return ImageOps.autocontrast(image)
        case "Equalize":
            return ImageOps.equalize(image)
        case "Cutout":
            return cutout(image, value, place)
        case _:
            return getattr(ImageEnhance, name)(image).enhance(value)


def to_pil(levels: Tensor) -> Image.Image:
    """One image (C, H, W) uint8."""
    array = levels.permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)


def from_pil(image: Image.Image) -> Tensor:
    """(C, H, W) uint8."""
    array = np.array(image)
    return torch.from_numpy(array[..., None] if array.ndim == 2 else array).permute(2, 0, 1)


def operate_all(images: Tensor, steps: Steps) -> Tensor:
    """``autodo.policies.operations.apply`` in Pillow, for uint8 images (B, C, H, W)."""
    results = []
    for i, levels in enumerate(images):
        image = to_pil(levels)
        for s in range(steps.operation.shape[1]):
            name, value = NAMES[steps.operation[i, s]], steps.value[i, s].item()
            image = operate(image, name, value, tuple(steps.place[i, s].tolist()))
        results.append(from_pil(image))
    return torch.stack(results)
