"""The warp against what is known without it: shifts, quarter turns, finite differences, kornia."""

from __future__ import annotations

import pytest
import torch
from kornia.geometry import get_affine_matrix2d, warp_affine
from torch import Tensor

from autodo.hyper.warp import affine_matrix, warp

SIZES = [(8, 8), (7, 7), (6, 9), (5, 4), (1, 6), (3, 1)]


def parameters(batch: int = 1, **given: float | Tensor) -> dict[str, Tensor]:
    """Identity parameters of a batch, some of them replaced."""
    values = {"rotation": 0.0, "translate_x": 0.0, "translate_y": 0.0, "shear_x": 0.0}
    values |= {"shear_y": 0.0, "scale_x": 1.0, "scale_y": 1.0} | given
    return {k: torch.as_tensor(v, dtype=torch.float64).expand(batch) for k, v in values.items()}


def random_parameters(batch: int, seed: int = 0) -> dict[str, Tensor]:
    def normal() -> Tensor:
        return torch.randn(batch, generator=generator, dtype=torch.float64)

    generator = torch.Generator().manual_seed(seed)
    moves = {k: 0.2 * normal() for k in ("translate_x", "translate_y", "shear_x", "shear_y")}
    scales = {k: torch.exp(0.3 * normal()) for k in ("scale_x", "scale_y")}
    return {"rotation": 40 * normal()} | moves | scales


def random_images(batch: int, channels: int, size: tuple[int, int]) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.rand(batch, channels, *size, generator=generator, dtype=torch.float64)


def kornia_matrix(size: tuple[int, int], p: dict[str, Tensor]) -> Tensor:
    """The same matrix made by kornia, (B, 2, 3)."""
    height, width = size
    centre = torch.tensor([(width - 1) / 2, (height - 1) / 2], dtype=torch.float64)
    return get_affine_matrix2d(
        translations=torch.stack((p["translate_x"] * width, p["translate_y"] * height), dim=-1),
        center=centre.expand(len(p["rotation"]), 2),
        scale=torch.stack((p["scale_x"], p["scale_y"]), dim=-1),
        angle=p["rotation"],
        sx=p["shear_x"],
        sy=p["shear_y"],
    )[:, :2]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_identity_parameters_give_back_the_image(size, padding_mode):
    images = random_images(2, 3, size)
    matrix = affine_matrix(size, **parameters(2))
    assert torch.equal(matrix, torch.eye(2, 3, dtype=torch.float64).expand(2, 2, 3))
    torch.testing.assert_close(warp(images, matrix, padding_mode), images, rtol=0, atol=1e-12)


@pytest.mark.parametrize("side", [6, 7])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_positive_quarter_turns_rotate_clockwise_as_displayed(side, turns):
    images = random_images(1, 2, (side, side))
    warped = warp(images, affine_matrix((side, side), **parameters(rotation=90.0 * turns)))
    clockwise = torch.rot90(images, k=-turns, dims=(-2, -1))
    torch.testing.assert_close(warped, clockwise, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [(6, 9), (5, 4)])
def test_whole_pixel_translation_shifts_right_and_down_with_zero_fill(size):
    height, width = size
    images = random_images(1, 3, size)
    moves = parameters(translate_x=2 / width, translate_y=1 / height)
    expected = torch.zeros_like(images)
    expected[..., 1:, 2:] = images[..., :-1, :-2]
    warped = warp(images, affine_matrix(size, **moves))
    torch.testing.assert_close(warped, expected, rtol=0, atol=1e-12)


def test_border_padding_repeats_the_outermost_pixel():
    images = random_images(1, 1, (4, 5))
    matrix = affine_matrix((4, 5), **parameters(translate_x=3 / 5))
    warped = warp(images, matrix, "border")
    torch.testing.assert_close(warped[..., :4], images[..., :1].expand(1, 1, 4, 4))


def test_scale_above_one_enlarges():
    images = torch.zeros(1, 1, 9, 9, dtype=torch.float64)
    images[..., 3:6, 3:6] = 1
    wide = warp(images, affine_matrix((9, 9), **parameters(scale_x=2.0)))
    assert wide.sum() > 1.9 * images.sum()
    torch.testing.assert_close(wide[0, 0, :3], torch.zeros(3, 9, dtype=torch.float64))


def test_each_image_is_moved_by_its_own_matrix():
    p, images = random_parameters(4), random_images(4, 3, (6, 9))
    together = warp(images, affine_matrix((6, 9), **p))
    for i in range(4):
        alone = affine_matrix((6, 9), **{k: v[i : i + 1] for k, v in p.items()})
        torch.testing.assert_close(warp(images[i : i + 1], alone), together[i : i + 1])


@pytest.mark.parametrize("size", SIZES)
def test_matrix_agrees_with_kornia(size):
    p = random_parameters(16)
    torch.testing.assert_close(affine_matrix(size, **p), kornia_matrix(size, p), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [(8, 8), (6, 9), (11, 5)])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_warped_images_agree_with_kornia(size, padding_mode):
    p, images = random_parameters(8), random_images(8, 3, size)
    theirs = warp_affine(
        images,
        kornia_matrix(size, p),
        size,
        padding_mode=padding_mode,
        # Only reflection depends on it: kornia's default mirrors at pixel centres, ours at edges.
        align_corners=padding_mode != "reflection",
    )
    ours = warp(images, affine_matrix(size, **p), padding_mode)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_gradient_to_every_parameter_and_pixel_agrees_with_finite_differences():
    # Bilinear interpolation has kinks where a sample falls on a pixel; random parameters avoid it.
    p = {k: v.requires_grad_() for k, v in random_parameters(2, seed=3).items()}
    images = random_images(2, 2, (5, 6)).requires_grad_()

    def warped(images: Tensor, *values: Tensor) -> Tensor:
        return warp(images, affine_matrix((5, 6), **dict(zip(p, values, strict=True))))

    assert torch.autograd.gradcheck(warped, (images, *p.values()), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_result_has_the_dtype_of_the_images(dtype):
    images = random_images(2, 3, (8, 8)).to(dtype)
    matrix = affine_matrix((8, 8), **parameters(2)).float()
    warped = warp(images, matrix)
    assert warped.dtype == dtype
    assert torch.equal(warped, images)  # 8 is a power of two: no rounding anywhere


def test_autocast_does_not_coarsen_the_grid():
    p = {k: v.float() for k, v in random_parameters(4).items()}
    images = random_images(4, 3, (33, 47)).float()
    plain = warp(images, affine_matrix((33, 47), **p))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = warp(images, affine_matrix((33, 47), **p))
    assert torch.equal(cast, plain)


def test_compiled_warp_is_one_graph_and_gives_the_same_values_and_gradients():
    def loss(images: Tensor, p: dict[str, Tensor]) -> Tensor:
        return warp(images, affine_matrix((6, 9), **p)).square().sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    gradients = []
    for function in (loss, compiled):
        p = {k: v.requires_grad_() for k, v in random_parameters(3).items()}
        function(random_images(3, 3, (6, 9)), p).backward()
        gradients.append(torch.stack([v.grad for v in p.values()]))
    torch.testing.assert_close(*gradients)
