"""A step that is recorded once as a CUDA graph and then replayed.

A network's step is thousands of small kernels, and launching them one by one keeps a fast GPU
waiting for Python. Elsewhere than on CUDA, and where recording fails, the step is simply called.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

Step = Callable[..., tuple[Tensor, ...]]

WARM_UP = 3
"""Calls before recording: kernels are chosen, workspaces made."""


class Recorded:
    """``step`` as a callable of tensors (or None), giving a tuple of tensors.

    The step must do all its work on the device, with shapes and addresses that do not change: what
    varies comes in through its arguments. Every call is one real step, recorded or not; what is
    recorded is the kind of the first call, and inputs of other shapes are simply stepped with.

    >>> Recorded(lambda x, y: (x + 1,), torch.device("cpu"))(torch.ones(1), None)
    (tensor([2.]),)
    """

    def __init__(
        self, step: Step, device: torch.device, *, pool: object = None, enabled: bool = True
    ) -> None:
        self.step, self.device, self.pool = step, device, pool
        self.enabled = enabled and device.type == "cuda"
        self._calls = 0
        self._shapes: list[torch.Size | None] = []
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor | None, ...] = ()
        self._outputs: tuple[Tensor, ...] = ()

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        if not self.enabled:
            return self.step(*inputs)
        shapes = [None if x is None else x.shape for x in inputs]
        if self._calls == 0:
            self._shapes = shapes
        if shapes != self._shapes:
            return self.step(*inputs)
        if self._graph is None:
            self._calls += 1
            if self._calls <= WARM_UP:
                return self._aside(inputs)
            self._record(inputs)
        if self._graph is None:
            return self.step(*inputs)
        for kept, given in zip(self._inputs, inputs, strict=True):
            if kept is not None and given is not None:
                kept.copy_(given, non_blocking=True)
        self._graph.replay()
        # The next replay writes to the same memory.
        return tuple(output.clone() for output in self._outputs)

    def _aside(self, inputs: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
        """One step on the stream of recordings, as recording asks of the steps before it."""
        here = torch.cuda.current_stream(self.device)
        # Not on a new one: every stream that multiplies keeps a workspace of 32 MiB for good.
        stream = _stream(self.device, here.priority)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            outputs = self.step(*inputs)
        here.wait_stream(stream)
        for output in outputs:
            output.record_stream(here)  # its memory is not given away while this stream needs it
        return outputs

    def _record(self, inputs: tuple[Tensor | None, ...]) -> None:
        self._inputs = tuple(None if x is None else x.to(self.device).clone() for x in inputs)
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()  # the graph has memory of its own; what warming up took is free
        graph = torch.cuda.CUDAGraph()
        randomness = torch.cuda.get_rng_state(self.device)
        priority = torch.cuda.current_stream(self.device).priority
        try:
            with torch.cuda.graph(
                graph,
                pool=self.pool,  # type: ignore[arg-type]
                stream=_stream(self.device, priority),
                # Other threads, such as one that pins batches, may go on with their work.
                capture_error_mode="thread_local",
            ):
                self._outputs = self.step(*self._inputs)
        except RuntimeError as error:
            self.enabled = False
            _renew_generator(self.device, randomness)
            warnings.warn(
                f"the step cannot be recorded as a CUDA graph and runs slower: "
                f"{str(error).splitlines()[0]}. Set cuda_graphs=false to silence this.",
                stacklevel=4,
            )
            return
        self._graph = graph


@cache
def _stream(device: torch.device, priority: int) -> torch.cuda.Stream:
    """Where steps are recorded whose kernels shall have a ``priority``.

    One for all of them: a pool gives memory that a recording no longer needs to those on the same
    stream only.
    """
    return torch.cuda.Stream(device, priority=priority)


def _renew_generator(device: torch.device, state: Tensor) -> None:
    """Give the device's random numbers a fresh start from ``state``.

    A recording that fails leaves them in the belief that it still goes on; the next draw would
    fail, in another place.
    """
    fresh = torch.Generator(device)
    fresh.set_state(state)
    number = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.default_generators[number].graphsafe_set_state(fresh.graphsafe_get_state())
