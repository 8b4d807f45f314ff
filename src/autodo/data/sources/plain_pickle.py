"""Pickles of plain data, read without running anything that they name.

A pickle may name any function of any module and have it called; CIFAR's are so published. Here
the names that arrays are pickled with stand for the small classes below, which take bytes, a
shape and a number type; every other name is refused. Not even numpy's own constructors are
called: fed with a forged type they would take bytes for addresses.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

_NUMBERS = frozenset(["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "b1"])


def load(file: IO[bytes]) -> Any:
    """What a pickle holds: numbers, text, bytes, lists, dicts, and arrays of numbers.

    Text of Python 2 comes as bytes. Raises pickle.UnpicklingError for anything else.

    >>> import io
    >>> load(io.BytesIO(pickle.dumps({"data": np.arange(3, dtype=np.uint8), "labels": [1]})))
    {'data': array([0, 1, 2], dtype=uint8), 'labels': [1]}
    >>> load(io.BytesIO(pickle.dumps(print)))
    Traceback (most recent call last):
    _pickle.UnpicklingError: builtins.print is not plain data
    """
    try:
        return _unwrap(_Unpickler(file, encoding="bytes").load())
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle fails in any way
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy._core", "numpy.core")  # renamed in numpy 2
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not plain data") from None

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("a reference to outside is not plain data")


class _NumberType:
    """In place of numpy.dtype."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.order = _text(code), "|"
        if self.code not in _NUMBERS:
            raise pickle.UnpicklingError(f"an array of type {self.code} is not plain data")

    def __setstate__(self, state: Sequence[Any]) -> None:
        self.order = _text(state[1])
        if self.order not in ("|", "<", ">", "=") or any(s is not None for s in state[2:5]):
            raise pickle.UnpicklingError("a compound type is not plain data")

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.order.replace("|", "=") + self.code)


class _Array:
    """In place of numpy.ndarray."""

    value: np.ndarray | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        _, shape, kind, fortran, data = state
        self.value = _shaped(data, kind, shape, "F" if fortran else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _frombuffer(data: Any, kind: _NumberType, shape: Sequence[int], order: Any) -> _Array:
    array = _Array()
    array.value = _shaped(data, kind, shape, _text(order))
    return array


def _scalar(kind: _NumberType, data: Any) -> Any:
    return _shaped(data, kind, (), "C").item()


def _encode(text: str, encoding: Any = "latin1") -> bytes:
    """In place of _codecs.encode, by which Python 3 writes bytes for Python 2."""
    if _text(encoding) != "latin1":
        raise pickle.UnpicklingError(f"bytes in {encoding!r} are not plain data")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """In place of bytes, by which Python 3 writes empty bytes for Python 2."""
    return b""


def _shaped(data: Any, kind: _NumberType, shape: Sequence[int], order: str) -> np.ndarray:
    raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
    flat = np.frombuffer(raw, kind.dtype)
    return flat.reshape(tuple(shape), order="F" if order == "F" else "C")


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _unwrap(value: Any) -> Any:
    """Arrays in place of what stood for them, at any depth."""
    if isinstance(value, _Array):
        if value.value is None:
            raise pickle.UnpicklingError("an array without contents")
        return value.value
    if isinstance(value, dict):
        return {key: _unwrap(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_unwrap(item) for item in value)
    if value is None or isinstance(value, int | float | str | bytes | bytearray):
        return value
    raise pickle.UnpicklingError(f"{type(value).__name__} is not plain data")


_KNOWN = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _NumberType,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
}
