"""One tensor argument of a launch, as the checker knows it: where it is, its shape in memory, its rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stubs import uninitialised
from stubs.interpreter_log import SlotPolicy

TOP = 1 << 63  # set in virtual addresses only
_MIDDLE = 1 << 47  # virtual offset of element 0, so that offsets of either sign stay within the tag's part


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A policy, and where its buffer lies: addresses [start, end), a row every ``row_bytes``."""

    policy: SlotPolicy
    start: int
    end: int
    row_bytes: int

    @classmethod
    def of(cls, policy: SlotPolicy) -> Rule:
        buffer = policy.buffer
        start, row_bytes = buffer.data_ptr(), buffer.stride(0) * buffer.element_size()
        return cls(policy, start, start + buffer.shape[0] * row_bytes, row_bytes)


class Region:
    """One tensor argument: where it is, and where kernels are told that it is."""

    def __init__(self, name: str, tensor: Any, tag: int, rules: Sequence[Rule], clue: str = "") -> None:
        self.name, self.tensor = name, tensor
        self.item = tensor.element_size()
        self.address = tensor.data_ptr()
        self.shape, self.stride = tuple(tensor.shape), tuple(tensor.stride())
        storage = tensor.untyped_storage()
        self.storage_start = storage.data_ptr() - self.address  # in bytes from element 0, like every offset below
        self.storage_end = self.storage_start + storage.nbytes()
        numel, self.extent = 1, 1
        for size, stride in zip(self.shape, self.stride, strict=True):
            numel *= size
            self.extent += (size - 1) * stride
        if not numel:
            self.extent = 0
        self.end = self.extent * self.item
        self.virtual = TOP | tag << 48 | _MIDDLE + (self.address & 0xFFF)  # alignment is kept
        self.base = np.uint64(self.virtual)
        # From virtual to real, by an addition that wraps.
        self.shift = np.uint64((self.address - self.virtual) % (1 << 64))
        self.dims = [] if self.extent == numel else _nested(self.shape, self.stride)
        end = self.address + self.end
        self.rules = [rule for rule in rules if rule.start < end and self.address < rule.end]
        self.clue = clue  # what loads of single elements tell about the request
        self.unwritten = uninitialised.unwritten(tensor, self.extent)
        self.plain = not (self.dims or self.rules or self.clue or self.unwritten)
        self._limits: dict[int, Any] = {}

    def limit(self, size: int) -> Any:
        """The greatest offset at which ``size`` bytes lie within the tensor, as uint64; None if there is none."""
        found = self._limits.get(size)
        if found is None and size <= self.end:
            found = self._limits[size] = np.uint64(self.end - size)
        return found


def _nested(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[tuple[int, int]]:
    """(stride, size) outermost first if the tensor has holes and no overlaps, else empty: nothing to check."""
    dims = sorted(((s, n) for n, s in zip(shape, stride, strict=True) if n > 1), reverse=True)
    reach = 0
    for step, size in reversed(dims):
        if step <= reach:
            return []
        reach += (size - 1) * step
    return dims
