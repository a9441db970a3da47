"""Memory that torch.empty and its kin hand out, filled with a pattern that nothing computes, so that a read of what
nobody wrote is told by its value.

As a float the pattern is a signalling NaN, which arithmetic never yields (it makes NaNs quiet); as an integer it lies far
outside of every index and length. A copy of unwritten memory is unwritten too. Elements of one byte have no value to
spare and are left alone, as is memory that is not the CPU's. The fill also makes runs repeatable that would depend on
what the allocator returns.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_WORDS: dict[int, tuple[torch.dtype, Any]] = {
    2: (torch.int16, np.uint16),
    4: (torch.int32, np.uint32),
    8: (torch.int64, np.uint64),
}
_PATTERNS = {2: 0x7DA5, 4: 0x7FA5A5A5, 8: 0x7FF5A5A5A5A5A5A5}  # by bytes of an element
_PATTERN_BFLOAT16 = 0x7FA5  # its exponent is longer: the other would be an ordinary number
_MAKERS = (
    (torch, "empty"),
    (torch, "empty_like"),
    (torch, "empty_strided"),
    (torch.Tensor, "new_empty"),
    (torch.Tensor, "new_empty_strided"),
)
_SHORT_BYTES = 4096


def pattern(dtype: torch.dtype) -> int | None:
    """The bits of an element that nobody wrote, or None where such elements cannot be told."""
    return _PATTERN_BFLOAT16 if dtype is torch.bfloat16 else _PATTERNS.get(dtype.itemsize)


def install() -> Callable[[], None]:
    """Fill what torch hands out from here on; the returned function takes it back."""
    stock = [(owner, name, getattr(owner, name)) for owner, name in _MAKERS]
    for owner, name, make in stock:
        setattr(owner, name, _filling(make))

    def undo() -> None:
        for owner, name, make in stock:
            setattr(owner, name, make)

    return undo


def _filling(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def filled(*args: Any, **kwargs: Any) -> Any:
        tensor = make(*args, **kwargs)
        if type(tensor) is torch.Tensor and tensor.device.type == "cpu":
            fill(tensor)
        return tensor

    return filled


def fill(tensor: torch.Tensor) -> None:
    """Make every element of a CPU tensor one that nobody wrote, if its dtype has one."""
    bits = None if tensor.is_complex() or tensor.is_quantized else pattern(tensor.dtype)
    if bits is not None and tensor.layout is torch.strided:
        tensor.detach().view(_WORDS[tensor.dtype.itemsize][0]).fill_(bits)


def unwritten(tensor: torch.Tensor, extent: int) -> tuple[NDArray[Any], int] | None:
    """The ``extent`` elements of memory from the tensor's first on as unsigned words, and the pattern.

    None if there is no element among them that nobody wrote, or it cannot be told. The words are the memory itself, which
    lives as long as the tensor.
    """
    bits = pattern(tensor.dtype)
    if bits is None or not extent or tensor.is_complex():
        return None
    item, address = tensor.dtype.itemsize, tensor.data_ptr()
    # Nearly always there is none; in a short tensor a search of bytes says so in a third of the time.
    if extent * item <= _SHORT_BYTES and bits.to_bytes(item, sys.byteorder) not in ctypes.string_at(
        address, extent * item
    ):
        return None
    memory: Any = (ctypes.c_ubyte * (extent * item)).from_address(address)
    words = np.frombuffer(memory, _WORDS[item][1])
    return (words, bits) if bool((words == bits).any()) else None
