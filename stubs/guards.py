"""Guard zones round pool buffers, on any device: memory that nothing may touch, before and behind what a pool allocated.

The pool keeps its class and its layout; each of its buffers becomes a view, of the shape and strides it had, into a
larger storage. What a kernel writes past a buffer's end is then seen when the guards are checked, and what it reads
there shows in its output, for guards hold large finite values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stubs.slots import POISON

GUARD_BYTES = 4096  # a page of any row that programs use; a multiple of every alignment that kernels ask for
GUARD_BYTE = 0x77  # in fp8, which pools keep as bytes: 240 in e4m3, 28672 in e5m2
GUARD_INDEX = 1 << 30  # in buffers of indices: outside of every pool


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """One storage and the zones round it. ``name`` is that of the buffers in it; ``memory`` is all of it, flat."""

    name: str
    memory: torch.Tensor
    width: int  # elements of each zone
    value: float

    def overwritten(self) -> list[int]:
        """Elements of the zones that were written, counted from the first of the storage between; mends them."""
        found = []
        inner = self.memory.numel() - 2 * self.width
        for start, first in ((0, -self.width), (self.width + inner, inner)):
            zone = self.memory[start : start + self.width]
            written = zone != self.value
            if bool(written.any()):
                found += [first + place for place in written.nonzero().flatten().tolist()]
                zone.fill_(self.value)
        return found


def surround(owner: Any, names: Sequence[str]) -> list[Guard]:
    """Put guards round the buffers that ``owner`` holds under ``names``: tensors, or lists of them.

    Buffers that share a storage go on sharing one. Tables of their addresses that the owner keeps are set right;
    whoever took a buffer or an address before holds the old one, so call it before the pool is handed out.
    """
    guards: list[Guard] = []
    moved: dict[int, int] = {}  # address of a buffer -> of its copy
    homes: dict[int, Guard] = {}  # address of a storage -> its guarded copy
    for name in names:
        held = getattr(owner, name)
        buffers = held if isinstance(held, list) else [held]
        copies = []
        for buffer in buffers:
            address = buffer.untyped_storage().data_ptr()
            if address not in homes:
                homes[address] = _guarded(name, buffer)
                guards.append(homes[address])
            home = homes[address]
            place = home.width + buffer.storage_offset()
            copies.append(home.memory.as_strided(buffer.shape, buffer.stride(), place))
            moved[buffer.data_ptr()] = copies[-1].data_ptr()
        setattr(owner, name, copies if isinstance(held, list) else copies[0])
    _move_addresses(owner, moved)
    return guards


def _guarded(name: str, buffer: torch.Tensor) -> Guard:
    """A copy of the buffer's whole storage between two zones."""
    size = buffer.untyped_storage().nbytes() // buffer.element_size()
    width = GUARD_BYTES // buffer.element_size()
    value = POISON if buffer.is_floating_point() else GUARD_BYTE if buffer.dtype == torch.uint8 else GUARD_INDEX
    memory = torch.full((size + 2 * width,), value, dtype=buffer.dtype, device=buffer.device)
    memory[width : width + size] = buffer.as_strided((size,), (1,), 0)
    return Guard(name, memory, width, value)


def _move_addresses(owner: Any, moved: dict[int, int]) -> None:
    """Tables of addresses are the tensors of uint64 that an owner keeps."""
    for name, table in list(vars(owner).items()):
        if isinstance(table, torch.Tensor) and table.dtype is torch.uint64:
            addresses = [moved.get(address, address) for address in table.tolist()]
            setattr(owner, name, torch.tensor(addresses, dtype=torch.uint64, device=table.device))
