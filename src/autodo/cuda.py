"""Kernels in CUDA C, compiled when they are first needed by the NVRTC that comes with torch.

No compiler and no headers need to be installed. A kernel is launched on torch's stream, and so can
be recorded in a CUDA graph like any other, once it has been launched before.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

MOST_SHARED_MEMORY = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
BFLOAT16, SWIZZLE_128, PROMOTE_128 = 9, 3, 2
"""As CU_TENSOR_MAP numbers them."""

KNOWS_HOPPER = 12, 4
"""The first version of NVRTC that does, and knows ``__maxnreg__``."""


@cache
def library() -> ctypes.CDLL | None:
    """NVRTC and the driver's functions, both of which a library of torch's links to."""
    path = Path(torch.__file__).parent / "lib" / "libcaffe2_nvrtc.so"
    try:
        found = ctypes.CDLL(str(path))
        _ = found.nvrtcVersion, found.cuLaunchKernel, found.cuTensorMapEncodeTiled
    except (OSError, AttributeError):
        return None
    return found


@cache
def is_hopper(device: torch.device) -> bool:
    """Whether kernels for compute capability 9.0 can be compiled and run there."""
    if torch.cuda.get_device_capability(device) != (9, 0) or (found := library()) is None:
        return False
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(found.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "asking for its version")
    return (major.value, minor.value) >= KNOWS_HOPPER


@cache
def multiprocessors(device: torch.device) -> int:
    """Those of a GPU; of a CPU, where Triton's interpreter runs one program after another, 1."""
    is_gpu = device.type == "cuda"
    return torch.cuda.get_device_properties(device).multi_processor_count if is_gpu else 1


class Kernel:
    """The function ``name`` of a program, which may ask for ``shared`` bytes of memory."""

    def __init__(self, source: str, name: str, *, shared: int = 0) -> None:
        self.source, self.name, self.shared = source, name, shared
        self._functions: dict[int, ctypes.c_void_p] = {}

    def __call__(
        self, grid: tuple[int, int, int], threads: int, *given: Tensor | TensorMap | int | None
    ) -> None:
        """Launch it; tensors are given as their addresses, None as a null pointer."""
        device = next(g.device for g in given if isinstance(g, Tensor))
        with torch.cuda.device(device):
            function = self._functions.get(device.index) or self._load(device.index)
            held = [_held(g) for g in given]
            addresses = (ctypes.c_void_p * len(held))(
                *(h if isinstance(h, int) else ctypes.addressof(h) for h in held)
            )
            stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
            launch = _library().cuLaunchKernel
            _check(
                launch(function, *grid, threads, 1, 1, self.shared, stream, addresses, None),
                f"launching {self.name}",
            )

    def _load(self, index: int) -> ctypes.c_void_p:
        cu, module, function = _library(), ctypes.c_void_p(), ctypes.c_void_p()
        binary = compiled(self.source, "sm_90a")
        _check(cu.cuModuleLoadData(ctypes.byref(module), binary), f"loading {self.name}")
        found = cu.cuModuleGetFunction(ctypes.byref(function), module, self.name.encode())
        _check(found, f"finding {self.name}")
        shared = ctypes.c_int(self.shared)
        _check(cu.cuFuncSetAttribute(function, MOST_SHARED_MEMORY, shared), "asking for memory")
        self._functions[index] = function
        return function


@cache
def compiled(source: str, architecture: str, nvrtc: ctypes.CDLL | None = None) -> bytes:
    """The binary of a program in CUDA C."""
    nvrtc = nvrtc or _library()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"", 0, None, None)
    _check(made, "creating a program")
    try:
        options = (f"--gpu-architecture={architecture}".encode(), b"--std=c++17")
        given = (ctypes.c_char_p * len(options))(*options)
        if nvrtc.nvrtcCompileProgram(program, len(options), given) != 0:
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"the kernel does not compile: {log.value.decode()}")
        _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "measuring a binary")
        binary = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetCUBIN(program, binary), "reading a binary")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw


class TensorMap:
    """A channels-last tensor (B, C, H, W) of bfloat16 for copies of boxes, zeros outside of it.

    A box is (channels, columns, rows, images); its 64 channels, 128 bytes, are swizzled.
    """

    def __init__(self, tensor: Tensor, box: tuple[int, int, int, int]) -> None:
        count, channels, height, width = tensor.shape
        self._memory = ctypes.create_string_buffer(128 + 64)
        self.address = -(-ctypes.addressof(self._memory) // 64) * 64
        sizes = (ctypes.c_uint64 * 4)(channels, width, height, count)
        row = 2 * channels
        strides = (ctypes.c_uint64 * 3)(row, row * width, row * width * height)
        boxes, ones = (ctypes.c_uint32 * 4)(*box), (ctypes.c_uint32 * 4)(1, 1, 1, 1)
        made = _library().cuTensorMapEncodeTiled(
            ctypes.c_void_p(self.address), BFLOAT16, 4, ctypes.c_void_p(tensor.data_ptr()),
            sizes, strides, boxes, ones, 0, SWIZZLE_128, PROMOTE_128, 0,
        )  # fmt: skip
        _check(made, "describing a tensor")


def _held(given: Tensor | TensorMap | int | None) -> ctypes.c_void_p | ctypes.c_int | int:
    """What an argument of a kernel is read from: an object, or the address of one."""
    if isinstance(given, TensorMap):
        return given.address
    if isinstance(given, int):
        return ctypes.c_int(given)
    return ctypes.c_void_p(None if given is None else given.data_ptr())


def _library() -> ctypes.CDLL:
    found = library()
    assert found is not None, "is_hopper() says whether there is one"
    return found


def _check(result: int, what: str) -> None:
    if result != 0:
        raise RuntimeError(f"CUDA error {result} when {what}")
