"""The geometric operations of a batch as ONE affine matrix and ONE bilinear resampling.

The paper applies its operations one after another, x(a) = O_a(x(a-1)); every step would blur the
image once more and cost one pass over it. Affine maps compose, so here the seven geometric
operations of an image become one (2, 3) matrix and the image is read once. Conventions are those
of ``kornia.geometry.get_affine_matrix2d`` and ``warp_affine``, which the tests compare with.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING_MODES = ("zeros", "border", "reflection")


def affine_matrix(
    size: tuple[int, int],
    *,
    rotation: Tensor,
    scale_x: Tensor,
    scale_y: Tensor,
    translate_x: Tensor,
    translate_y: Tensor,
    shear_x: Tensor,
    shear_y: Tensor,
) -> Tensor:
    """Compose the operations of each image into one matrix, (B, 2, 3), every argument (B,).

    The matrix maps a pixel (x right, y down) of the input to its place in the output, about the
    centre c = ((W - 1)/2, (H - 1)/2) of an image of ``size`` (H, W):

        out = R S K (in - c) + c + t

    - K, shear in radians: x -= tan(shear_x) y, then y -= tan(shear_y) x. Positive ``shear_x`` moves
      the bottom to the left; positive ``shear_y`` moves the right side up.
    - S, scale: above 1 enlarges what is seen.
    - R, rotation in degrees: positive turns clockwise as displayed.
    - t, translation as a fraction of the width or height: positive moves right or down.

    The determinant is scale_x * scale_y, whatever the rest.

    >>> quarter = {name: torch.zeros(1) for name in ("translate_x", "translate_y")}
    >>> quarter |= {name: torch.zeros(1) for name in ("shear_x", "shear_y")}
    >>> quarter |= {name: torch.ones(1) for name in ("scale_x", "scale_y")}
    >>> affine_matrix((2, 2), rotation=torch.tensor([90.0]), **quarter).round().int()
    tensor([[[ 0, -1,  1],
             [ 1,  0,  0]]], dtype=torch.int32)
    """
    height, width = size
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    angle = rotation * (math.pi / 180)
    cos, sin = torch.cos(angle), torch.sin(angle)
    tan_x, tan_y = torch.tan(shear_x), torch.tan(shear_y)
    # Written out by element: a matmul would run in bf16 under autocast and in TF32 where that is
    # allowed, and an error of 1e-3 in the matrix is a visible shift at the border of the image.
    k_yy = 1 + tan_x * tan_y
    m_xx = cos * scale_x + sin * scale_y * tan_y
    m_xy = -cos * scale_x * tan_x - sin * scale_y * k_yy
    m_yx = sin * scale_x - cos * scale_y * tan_y
    m_yy = -sin * scale_x * tan_x + cos * scale_y * k_yy
    m_x = centre_x + translate_x * width - (m_xx * centre_x + m_xy * centre_y)
    m_y = centre_y + translate_y * height - (m_yx * centre_x + m_yy * centre_y)
    return torch.stack((m_xx, m_xy, m_x, m_yx, m_yy, m_y), dim=-1).unflatten(-1, (2, 3))


def warp(images: Tensor, matrix: Tensor, padding_mode: str = "zeros") -> Tensor:
    """Move every pixel of ``images`` (B, C, H, W) by its ``matrix`` (B, 2, 3), bilinearly.

    ``matrix`` is the forward map, input pixel to output pixel, as :func:`affine_matrix` makes it;
    its 2x2 part must be invertible. What comes from outside the image follows ``padding_mode`` of
    ``grid_sample``; "reflection" mirrors at the edge of the outermost pixels. The arithmetic is
    float64 for float64 images and float32 otherwise; the result has the dtype of ``images``.

    A shift by one pixel to the right, with zeros coming in:

    >>> image = torch.tensor([[[[1.0, 2.0, 3.0]]]])
    >>> warp(image, torch.tensor([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])).round(decimals=4)
    tensor([[[[0., 1., 2.]]]])
    """
    dtype = torch.promote_types(images.dtype, torch.float32)
    height, width = images.shape[-2:]
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    # Six tensors of shape (B, 1, 1), to broadcast over the pixels.
    m_xx, m_xy, m_x, m_yx, m_yy, m_y = matrix.to(dtype).flatten(1)[..., None, None].unbind(1)

    # in - c = M^-1 (out - c - t), with t the displacement of the centre. F.affine_grid would do
    # the product by bmm, hence in bf16 under autocast and in TF32 where allowed; this does not.
    shift_x = m_xx * centre_x + m_xy * centre_y + m_x - centre_x
    shift_y = m_yx * centre_x + m_yy * centre_y + m_y - centre_y
    out_x = torch.arange(width, dtype=dtype, device=images.device) - centre_x - shift_x
    out_y = torch.arange(height, dtype=dtype, device=images.device)[:, None] - centre_y - shift_y
    determinant = m_xx * m_yy - m_xy * m_yx
    in_x = (m_yy * out_x - m_xy * out_y) / determinant
    in_y = (m_xx * out_y - m_yx * out_x) / determinant

    # align_corners=False puts pixel x at 2 (x - c) / W: no offset to round, no 0/0 at width 1.
    grid = torch.stack((in_x * (2 / width), in_y * (2 / height)), dim=-1)
    warped = F.grid_sample(
        images.to(dtype), grid, mode="bilinear", padding_mode=padding_mode, align_corners=False
    )
    return warped.to(images.dtype)
