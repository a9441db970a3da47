"""One tensor argument of a launch, as the checker knows it: where it is, its shape in memory, its rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stubs import uninitialised
from stubs.interpreter_log import SlotPolicy

TOP = 1 << 63  # set in virtual addresses only
_MIDDLE = 1 << 47  # virtual offset of element 0, so that offsets of either sign stay within the tag's part


class Region:
    """One tensor argument: where it is, and where kernels are told that it is."""

    def __init__(self, name: str, tensor: Any, tag: int, policies: Sequence[SlotPolicy], clue: str = "") -> None:
        self.name, self.tensor = name, tensor
        self.item = tensor.element_size()
        self.address = tensor.data_ptr()
        self.shape, self.stride = tuple(tensor.shape), tuple(tensor.stride())
        storage = tensor.untyped_storage()
        self.storage_start = storage.data_ptr() - self.address  # in bytes from element 0, like every offset below
        self.storage_end = self.storage_start + storage.nbytes()
        empty = tensor.numel() == 0
        steps = sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        self.extent = 0 if empty else 1 + steps
        self.end = self.extent * self.item
        self.virtual = TOP | tag << 48 | _MIDDLE + (self.address & 0xFFF)  # alignment is kept
        self.base = np.uint64(self.virtual)
        self.real = np.uint64(self.address)
        self.shift = np.uint64(
            (self.address - self.virtual) % (1 << 64)
        )  # from virtual to real, by an addition that wraps
        self.limits = {size: np.uint64(self.end - size) for size in (1, 2, 4, 8) if size <= self.end}
        self.dims = [] if empty or self.extent == tensor.numel() else _nested(self.shape, self.stride)
        self.policies = [policy for policy in policies if _overlap(self, policy.buffer)]
        self.clue = clue  # what loads of single elements tell about the request
        self.unwritten = uninitialised.unwritten(tensor, self.extent)
        self.plain = not (self.dims or self.policies or self.clue or self.unwritten)


def _nested(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[tuple[int, int]]:
    """(stride, size) outermost first if the tensor has holes and no overlaps, else empty: nothing to check."""
    dims = sorted(((s, n) for n, s in zip(shape, stride, strict=True) if n > 1), reverse=True)
    reach = 0
    for step, size in reversed(dims):
        if step <= reach:
            return []
        reach += (size - 1) * step
    return dims


def _overlap(region: Region, buffer: Any) -> bool:
    start = buffer.data_ptr()
    end = start + buffer.shape[0] * buffer.stride(0) * buffer.element_size()
    return bool(start < region.address + region.end and region.address < end)
