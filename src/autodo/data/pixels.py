"""One image as users bring it (PIL, numpy, tensor), turned into a (C, H, W) tensor.

uint8 stays uint8 and is scaled to [0, 1] only on the device, where it is a
quarter of the traffic; floats become float32 and keep their values. Also here:
what a whole set of images must have in common, and the fingerprint by which
the same image is known again in another set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from autodo.data import wording
from autodo.errors import InputError

GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N")


def to_unit(images: Tensor) -> Tensor:
    """Images as float32; uint8 is scaled from 0 .. 255 to 0 .. 1.

    >>> to_unit(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """
    return images.float().div_(255) if images.dtype == torch.uint8 else images


def convert_mode(image: Image.Image, channels: int | None = None) -> Image.Image:
    """A PIL image in mode L (1 channel) or RGB (3).

    Without ``channels`` grey modes stay grey and every colour mode becomes RGB;
    transparency is dropped.
    """
    if image.mode in GREY_MODES and image.mode.startswith("I"):
        # Pillow clips 16-bit grey at 255 when it converts, which whitens the whole image.
        wide = np.asarray(image).astype(np.int64).clip(0, 65535)
        image = Image.fromarray((wide >> 8).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("32-bit floating-point pixels have no known range")
    grey = channels == 1 if channels is not None else image.mode in GREY_MODES
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("L" if grey else "RGB")


def from_pil(image: Image.Image) -> Tensor:
    """A PIL image of mode L or RGB as a uint8 tensor (C, H, W)."""
    array = np.array(image)  # a copy: PIL's own buffer is read-only
    return torch.from_numpy(np.atleast_3d(array)).permute(2, 0, 1).contiguous()


def as_image(value: Any, *, where: str) -> Tensor:
    """An image as a tensor (C, H, W) of uint8 or float32; ``where`` names it in the error.

    Grey images may come as (H, W). Channels may come last when there are 1 or 3
    of them; for uint8 arrays, which mostly stem from PIL, last wins over first.

    >>> as_image(np.zeros((5, 7, 3), dtype=np.uint8), where="train[0]").shape
    torch.Size([3, 5, 7])
    """
    if isinstance(value, Image.Image):
        try:
            return from_pil(convert_mode(value))
        except (ValueError, OSError) as error:
            raise InputError(
                f"the image of {where} cannot be read",
                f"PIL says of its mode {value.mode}: {error}",
                "mend or remove it, or convert it to 'L' or 'RGB' in the dataset",
            ) from error
    if not isinstance(value, Tensor | np.ndarray):
        raise InputError(
            f"the image of {where} is of type {type(value).__name__}",
            "an image is a torch tensor, a numpy array or a PIL image",
            "convert it in the dataset's __getitem__; the image comes first, the label second",
        )
    image = as_pixels(value, where=f"the image of {where}")
    if image.ndim == 2:
        return image[None]
    if image.ndim != 3:
        raise InputError(
            f"the image of {where} has shape {tuple(image.shape)}",
            "one image has shape (C, H, W) or (H, W)",
            "return one image per item, without a batch axis",
        )
    photo = isinstance(value, np.ndarray) and image.dtype == torch.uint8
    channels_last = image.shape[-1] in (1, 3) and (photo or image.shape[0] not in (1, 3))
    return image.permute(2, 0, 1) if channels_last else image


def as_pixels(value: Any, *, where: str) -> Tensor:
    """Pixels of any shape as a tensor of uint8 or float32."""
    if not isinstance(value, Tensor):
        array = np.asarray(value)
        if array.dtype.kind in "iubf":
            # A copy where torch cannot share the memory: negative strides, read-only, big-endian.
            native = array.dtype.newbyteorder("=")
            value = torch.from_numpy(np.require(array, native, ["C", "W"]))
    if isinstance(value, Tensor):
        value = value.detach()
        if value.dtype == torch.uint8:
            return value
        if value.is_floating_point():
            return value.float()
    raise InputError(
        f"{where} has pixels of type {value.dtype if isinstance(value, Tensor) else array.dtype}",
        "pixels are uint8 (0 .. 255) or floating-point; other types have no known range",
        "convert with .to(torch.uint8) or .astype('uint8'), or scale to floats in [0, 1]",
    )


def as_images(value: Any, *, where: str) -> Tensor:
    """Images of a whole set as (N, C, H, W), which may come as (N, H, W) or with channels last.

    Channels are last when that axis is 1 or 3 long and the second is not.

    >>> as_images(np.zeros((2, 5, 7, 3), dtype=np.uint8), where="train").shape
    torch.Size([2, 3, 5, 7])
    """
    images = as_pixels(value, where=where)
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[-1] in (1, 3) and images.shape[1] not in (1, 3):
        return images.permute(0, 3, 1, 2).contiguous()
    return images


def check_same(kinds: dict[str, tuple[int, str]], *, name: str) -> None:
    """Refuse images of several shapes or types.

    ``kinds`` maps each kind found to how many images are of it and where the first is.
    """
    if len(kinds) > 1:
        found = (
            f"{kind} ({wording.count(n, 'image')}, first {where})"
            for kind, (n, where) in kinds.items()
        )
        raise InputError(
            f"{name} mixes images of {len(kinds)} shapes or types: {wording.some(found, 4)}",
            "a batch holds images of one shape (C, H, W) and one type only",
            "resize or crop to one size and convert to one number of channels in the dataset",
        )


def check_finite(bad: Sequence[tuple[int, int]], *, name: str, ids: Sequence[str]) -> None:
    """Refuse NaN and infinity; ``bad`` lists (index, pixels that are not finite)."""
    if bad:
        found = (f"{wording.example(name, i, ids)} ({wording.count(n, 'pixel')})" for i, n in bad)
        raise InputError(
            f"NaN or infinite pixels in {wording.count(len(bad), 'image')} of {name}: "
            f"{wording.some(found, 3)}",
            "often a division by a standard deviation of 0, or an overflow of half precision",
            "mend or remove those images; one such pixel turns every weight of the model into NaN",
        )


def fingerprint(image: Tensor) -> bytes:
    """16 bytes that are equal for equal pixels, whether they came as uint8 or as x/255."""
    pixels = to_unit(image).cpu().numpy()
    return hashlib.blake2b(pixels.tobytes(), digest_size=16).digest()
