"""The views that a belief is a mean over."""

from __future__ import annotations

import pytest
import torch

from autodo.train.views import averaged, views


@pytest.mark.parametrize("side", [16, 33, 64, 96])
def test_images_move_along_the_diagonal_by_a_pixel_in_32(side: int) -> None:
    images = torch.rand(2, 3, side, side)
    by = max(1, side // 32)
    as_it_is, up, down = views(images, 0)
    assert torch.equal(as_it_is, images)
    assert up.shape == down.shape == images.shape
    assert torch.equal(up[..., :-by, :-by], images[..., by:, by:])
    assert torch.equal(down[..., by:, by:], images[..., :-by, :-by])
    # What comes in is the edge, not black.
    assert torch.equal(up[..., -1, -1], images[..., -1, -1])
    assert torch.equal(down[..., 0, 0], images[..., 0, 0])


@pytest.mark.parametrize(
    ("size", "level", "count"),
    [
        ((32, 32), 0, 3),
        ((32, 32), 1, 6),
        ((32, 32), 2, 12),
        ((32, 32), 3, 24),
        ((32, 48), 3, 12),  # rows and columns cannot change places
        ((8, 8), 0, 1),  # a pixel is too much
        ((8, 8), 3, 8),
        ((8, 64), 1, 2),
    ],
)
def test_every_view_is_another(size: tuple[int, int], level: int, count: int) -> None:
    image = torch.rand(1, 1, *size)
    found = list(views(image, level))
    assert torch.equal(found[0], image)
    assert len({tuple(view.flatten().tolist()) for view in found}) == len(found) == count
    assert all(view.shape == image.shape for view in found)


def test_what_is_made_of_an_image_is_the_mean_over_its_views() -> None:
    torch.manual_seed(0)
    encode = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 4), torch.nn.ReLU())
    images = torch.rand(5, 1, 16, 16)
    with torch.no_grad():
        mean = averaged(encode, 1)(images)
        one_by_one = torch.stack([encode(view) for view in views(images, 1)]).mean(0)
        mirrored = averaged(encode, 1)(images.flip(-1))
        assert not torch.allclose(mean, encode(images), atol=1e-3)
    torch.testing.assert_close(mean, one_by_one)
    # The three places of a mirrored image are not those of the image, but both are in the mean.
    assert (mean - mirrored).abs().max() < (encode(images) - encode(images.flip(-1))).abs().max()
