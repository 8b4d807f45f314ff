"""The augmentation sub-model g_A: which operations an image gets, and how strongly.

Every operation a = 1..A has two numbers in the row of a point, lambda^A = [A_m; A_b] (2A,):

    gate   b ~ Bernoulli(sigmoid(A_b)),            straight-through binary Gumbel-softmax
    value  m = centre + range * M/10 * sigmoid(A_m) * eps,   eps ~ Normal(0, 1)

and the image gets centre + b (m - centre). The rows live in a table elsewhere; nothing here learns.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from autodo.errors import InputError
from autodo.hyper.colour import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
)
from autodo.hyper.warp import PADDING_MODES, affine_matrix, warp
from autodo.kernels import has_triton

KINDS = ("affine", "colour", "affine+colour")
INITIAL_PROBABILITY = 0.25


@dataclass(frozen=True)
class Operation:
    """One learnable operation: the paper's [mu, rng], and the values it may not leave."""

    name: str
    kind: str
    """"affine" or "colour"."""
    centre: float
    """The value that changes nothing, and the mean of the drawn ones."""
    range: float
    """The standard deviation at magnitude 10 and sigmoid(A_m) = 1, in the operation's units."""
    low: float = -math.inf
    """Drawn values below are set to it (and then pass no gradient)."""
    high: float = math.inf
    """Drawn values above are set to it (and then pass no gradient)."""


# The bounds keep a rare draw of the unbounded normal harmless: a scale of 0 has no inverse, a
# shear of pi/2 has an infinite tangent, a negative contrast is a negative. At magnitude 5 the scale
# meets its bound at 3.6 standard deviations of the widest row, the shears at 6.7.
OPERATIONS = (
    Operation("rotation", "affine", 0.0, 30.0),  # degrees
    Operation("scale_x", "affine", 1.0, 0.5, low=0.1),
    Operation("scale_y", "affine", 1.0, 0.5, low=0.1),
    Operation("translate_x", "affine", 0.0, 0.45),  # of the width
    Operation("translate_y", "affine", 0.0, 0.45),  # of the height
    Operation("shear_x", "affine", 0.0, 0.3, low=-1.0, high=1.0),  # radians
    Operation("shear_y", "affine", 0.0, 0.3, low=-1.0, high=1.0),  # radians
    # At magnitude 5 the widest row spreads like the usual colour jitter, uniform on +-0.4.
    Operation("brightness", "colour", 1.0, 0.5, low=0.0),
    Operation("contrast", "colour", 1.0, 0.5, low=0.0),
    Operation("saturation", "colour", 1.0, 0.5, low=0.0),
    # Radians, as in kornia: 0.5 of a whole turn would start with reds drawn as greens.
    Operation("hue", "colour", 0.0, 0.5),
)
"""All operations in the order of the columns of a row. Signs and units: see ``warp.affine_matrix``
and ``colour``."""


@dataclass(frozen=True)
class Augment:
    """Draws and applies the learned augmentation of a batch, differentiably in the rows.

    The paper prints m ~ rng M/10 Normal(mu, sigmoid(A_m)). For mu = 0 that is the value above; for
    scale, mu = 1, it read literally would multiply the mean too and shrink every image to a
    quarter. So the centre stays outside. sigmoid(A_m) is taken as the standard deviation.

    >>> augment = Augment("affine")
    >>> images, rows = torch.rand(4, 3, 8, 8), augment.initial_row().expand(4, -1)
    >>> augment(images, rows, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 8, 8])
    >>> round(augment.describe(rows)["rotation_magnitude"][0].item(), 2)  # degrees: 30 * 5/10 * 1/2
    7.5
    """

    kind: str = "affine"
    """Which operations: "affine", "colour" or "affine+colour"."""
    magnitude: float = 5.0
    """M, which scales every range by M/10 (the paper: 5)."""
    temperature: float = 1.0
    """Of the Gumbel-softmax: only the gates' gradient depends on it, never their frequency."""
    padding_mode: str = "zeros"
    """What the warp brings in from outside the image: "zeros", "border" or "reflection"."""

    def __post_init__(self) -> None:
        for name, value, choices, meaning in (
            ("kind", self.kind, KINDS, "it names the set of operations to learn"),
            ("padding_mode", self.padding_mode, PADDING_MODES, "it is passed to grid_sample"),
        ):
            if value not in choices:
                raise InputError(
                    f"Augment has no {name}={value!r}",
                    meaning,
                    f"choose one of {', '.join(map(repr, choices))}",
                )
        for name, number in (("magnitude", self.magnitude), ("temperature", self.temperature)):
            if not 0 < number < math.inf:
                raise InputError(
                    f"{name}={number!r} cannot be used by Augment",
                    "values and gates are scaled by it, and at zero nothing can be learned",
                    "give a positive number (the defaults are magnitude 5 and temperature 1)",
                )

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the A operations in use, in the order of the columns."""
        return tuple(operation.name for operation in self._table())

    def initial_row(self) -> Tensor:
        """The row (2A,) that every point starts with: A_m = 0, gates open with 25%."""
        count = len(self.operations)
        closed = math.log(INITIAL_PROBABILITY / (1 - INITIAL_PROBABILITY))
        return torch.cat((torch.zeros(count), torch.full((count,), closed)))

    def noise(
        self, batch_size: int, generator: Generator | None = None, like: Tensor | None = None
    ) -> Tensor:
        """The random numbers (2, B, A) that ``sample`` turns into values: uniform and normal.

        They are drawn on the device of ``generator``, so that a run with a CPU generator repeats
        on any device; without one, on that of ``like``, whose type they have (float32 unless told).
        """
        like = torch.empty(0) if like is None else like
        device = like.device if generator is None else generator.device
        shape = (batch_size, len(self.operations))
        uniform = torch.rand(shape, generator=generator, device=device, dtype=like.dtype)
        normal = torch.randn(shape, generator=generator, device=device, dtype=like.dtype)
        return torch.stack((uniform, normal))

    def sample(
        self,
        rows: Tensor,
        batch_size: int,
        generator: Generator | None = None,
        *,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Values (B, A) of every operation, its centre where the gate is closed.

        ``rows`` is (B, 2A), or (2A,) or (1, 2A) for one row that all images share (their draws are
        still their own). ``noise`` (2, B, A) is drawn from ``generator`` unless it is given.
        """
        self._check(rows, batch_size)
        magnitude_logits, gate_logits = self._split(rows)
        uniform, normal = self._noise(magnitude_logits, batch_size, generator, noise)
        centre, spread, low, high = self._constants(magnitude_logits)
        value = centre + spread * torch.sigmoid(magnitude_logits) * normal
        value = torch.clamp(value, low, high)
        return centre + binary_gate(gate_logits, uniform, self.temperature) * (value - centre)

    def apply(self, images: Tensor, values: Tensor) -> Tensor:
        """Images (B, C, H, W), changed by their ``values`` (B, A): one warp, then the colours.

        Differentiable in both. Colour operations expect pixels in [0, 1] and clamp to it.
        """
        if images.dim() != 4 or not images.is_floating_point():
            raise InputError(
                f"images are {images.dtype} of shape {tuple(images.shape)}",
                "the augmentation needs a batch (B, C, H, W) of floating-point images",
                "convert them first, for bytes with images.float() / 255",
            )
        columns = dict(zip(self.operations, values.unbind(-1), strict=True))
        # bf16 has 8 bits: one rounding at the end instead of one per operation.
        result = images.to(torch.promote_types(images.dtype, torch.float32))
        if "rotation" in columns:
            affine = {op.name: columns[op.name] for op in OPERATIONS if op.kind == "affine"}
            size = (images.shape[-2], images.shape[-1])
            result = warp(result, affine_matrix(size, **affine), self.padding_mode)
        if "hue" in columns:
            result = adjust_brightness(result, columns["brightness"])
            result = adjust_contrast(result, columns["contrast"])
            result = adjust_saturation(result, columns["saturation"])
            result = adjust_hue(result, columns["hue"])
        return result.to(images.dtype)

    def __call__(
        self,
        images: Tensor,
        rows: Tensor,
        generator: Generator | None = None,
        *,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Draw values for ``images`` (B, C, H, W) from their ``rows`` and apply them."""
        if self._can_fuse(images, rows):
            from autodo.hyper.warp_triton import augmented

            self._check(rows, len(images))
            rows = rows.reshape(-1, rows.shape[-1]).float()
            noise = self._noise(rows, len(images), generator, noise)
            return augmented(images, rows, noise, self._constants(rows), self.temperature)
        return self.apply(images, self.sample(rows, len(images), generator, noise=noise))

    def describe(self, rows: Tensor) -> dict[str, Tensor]:
        """What the rows (N, 2A) mean, as columns (N,) of the points table.

        "{operation}_magnitude" is the standard deviation of the value in the operation's own units
        (degrees, fractions, radians), "{operation}_probability" how often it is applied.
        """
        self._check(rows)
        magnitude_logits, gate_logits = self._split(rows)
        deviation = self._constants(magnitude_logits)[1] * torch.sigmoid(magnitude_logits)
        probability = torch.sigmoid(gate_logits)
        described = {}
        for a, name in enumerate(self.operations):
            described[f"{name}_magnitude"] = deviation[..., a]
            described[f"{name}_probability"] = probability[..., a]
        return described

    def _table(self) -> list[Operation]:
        return [operation for operation in OPERATIONS if operation.kind in self.kind.split("+")]

    def _can_fuse(self, images: Tensor, rows: Tensor) -> bool:
        """Whether one kernel can do it all: it knows the usual case, and no gradient but rows'."""
        return (
            images.is_cuda
            and images.dim() == 4
            and images.dtype == torch.float32
            and rows.dtype != torch.float64
            and self.kind == "affine"
            and self.padding_mode == "zeros"
            and not (torch.is_grad_enabled() and images.requires_grad)
            and has_triton()
        )

    def _noise(
        self, like: Tensor, batch_size: int, generator: Generator | None, given: Tensor | None
    ) -> Tensor:
        """The random numbers (2, B, A) where ``like`` is: those given, or new ones."""
        noise = self.noise(batch_size, generator, like) if given is None else given
        return noise.to(like.device, non_blocking=True)

    def _check(self, rows: Tensor, batch_size: int | None = None) -> None:
        """Raise unless rows are of these operations and, if told, for so many images."""
        count = len(self.operations)
        if rows.shape[-1] != 2 * count:
            raise InputError(
                f"the augmentation rows have {rows.shape[-1]} columns, not {2 * count}",
                f"{self.kind!r} has {count} operations, each with a magnitude and a gate",
                "use the kind of augmentation that the rows were made with",
            )
        if batch_size is not None and rows.dim() > 1 and len(rows) not in (1, batch_size):
            raise InputError(
                f"{len(rows)} augmentation rows came with {batch_size} images",
                "every image needs its own row, or all share one",
                "gather the rows by the index of the batch",
            )

    def _split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """A_m and A_b of the rows, (..., A) each, in at least float32."""
        count = len(self.operations)
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        return rows[..., :count], rows[..., count:]

    def _constants(self, like: Tensor) -> Tensor:
        """Centre, range * M/10, low and high of every operation in use, (4, A)."""
        return _constants(self.kind, self.magnitude, like.dtype, like.device)


@functools.lru_cache
def _constants(kind: str, magnitude: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    # Kept: a step that is recorded as a CUDA graph cannot bring numbers from the host.
    columns = [
        (op.centre, op.range * magnitude / 10, op.low, op.high) for op in Augment(kind)._table()
    ]
    return torch.tensor(columns, dtype=dtype).T.contiguous().to(device)


def binary_gate(logits: Tensor, uniform: Tensor, temperature: float = 1.0) -> Tensor:
    """Gates that are exactly 0 or 1 forward and a sigmoid backward (straight-through).

    With two classes the difference of their Gumbel noises is logistic, logit(u): the gate is open
    where logit + logit(u) > 0, which has the probability sigmoid(logit). Its gradient is that of
    sigmoid((logit + logit(u)) / temperature).

    >>> binary_gate(torch.tensor([-1.0, -1.0]), torch.tensor([0.7, 0.8]))
    tensor([0., 1.])
    """
    # rand may return exactly 0, whose logit is infinite.
    noise = torch.logit(uniform, eps=torch.finfo(uniform.dtype).eps)
    soft = torch.sigmoid((logits + noise) / temperature)
    hard = (logits + noise > 0).to(soft.dtype)
    # soft - soft.detach() is exactly 0, so the sum is exactly the hard gate.
    return hard + (soft - soft.detach())
