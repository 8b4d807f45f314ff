"""Which symmetry images have, by a network that has not been told.

It has seen neither these points nor any image after one of the changes of ``hyper.symmetry``. If it
recognises them nearly as well after one, the change makes no other class of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from torch import Tensor, nn

from autodo.data.loader import Loader
from autodo.hyper.symmetry import (
    CHANGES,
    SYMMETRIES,
    Recognition,
    changes,
    is_enough,
    is_too_much,
    recognition,
)
from autodo.train.helpers import encoded
from autodo.train.run_folder import Metrics

POINTS = 10_000
"""That it is asked for, at the most."""
IN_WORDS = {
    "mirror": "mirrored",
    "flips": "mirrored and put upside down",
    "turns": "mirrored, put upside down and turned",
}


def recognise(
    loader: Loader,
    encode: Callable[[Tensor], Tensor],
    head: nn.Linear,
    points: Tensor,
) -> Metrics:
    """How well a network recognises ``points`` (n,) after each change.

    Changes are tried until one is plainly too much.
    """
    points = points[:: -(-len(points) // POINTS)]
    labels = loader.labels[points.to(loader.labels.device)]
    height, width = loader.dataset.image_shape[-2:]

    def taken_for(change: Callable[[Tensor], Tensor]) -> Tensor:
        return head(encoded(loader, lambda images: encode(change(images)), points)).argmax(-1)

    before = taken_for(lambda images: images)
    metrics: Metrics = {}
    for name, change in changes(len(CHANGES), (height, width)).items():
        found = recognition(before, taken_for(change), labels, head.out_features)
        metrics |= {name: found.share, f"{name}_error": found.error, f"{name}_lost": found.lost}
        if is_too_much(found):
            break
    return metrics


def agreed_symmetry(said: Sequence[Metrics]) -> int:
    """The place in ``SYMMETRIES`` of what networks together ``said`` of images.

    >>> unsure = {"mirror": 0.97, "mirror_error": 0.04, "mirror_lost": False}
    >>> agreed_symmetry([unsure]), agreed_symmetry([unsure, unsure])
    (0, 1)
    """
    level = 0
    for name in CHANGES:
        if not all(name in metrics for metrics in said):
            break
        found = [
            Recognition(share=m[name], error=m[f"{name}_error"], lost=m[f"{name}_lost"])
            for m in said
        ]
        if not is_enough(found):
            break
        level += 1
    return level


def in_words(symmetry: str, history: list[Metrics]) -> str:
    """What was done to images, and why; nothing where that was no question.

    ``symmetry`` is what the configuration says.

    >>> in_words("auto", [{"mirror": 0.98, "upside_down": 0.41, "symmetry": "mirror"}])
    'images are also mirrored: networks that had never seen such images recognise them 98% as well'
    >>> in_words("auto", [{"mirror": 0.2, "symmetry": "none"}])
    'images are not mirrored: networks that had never seen such images recognise them 20% as well'
    """
    said = [metrics for metrics in history if "symmetry" in metrics]
    used = said[-1]["symmetry"] if said else symmetry
    if not said:
        return f"images are also {IN_WORDS[used]}" if used in IN_WORDS else ""
    asked = list(CHANGES)[: max(1, SYMMETRIES.index(used))]
    shares = [mean(metrics[name] for metrics in said if name in metrics) for name in asked]
    share = max(0.0, min(shares))
    done = f"also {IN_WORDS[used]}" if used in IN_WORDS else "not mirrored"
    return (
        f"images are {done}: networks that had never seen such images recognise them "
        f"{share:.0%} as well"
    )
