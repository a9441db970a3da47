"""How far a worker's program has come, in memory that outlives it: its parent reads there where a dead one was.

A file mapped into both processes: (number of the request, ops begun). A write costs no system call.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path

_LAYOUT = struct.Struct("<II")
_slot: mmap.mmap | None = None  # this process's own; None in a process that nobody watches
_told: Callable[[int], None] | None = None  # whoever wants to know in this process as well


def open_slot(path: Path) -> mmap.mmap:
    """Map the file, which is made where it is missing."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if os.fstat(fd).st_size < _LAYOUT.size:
            os.pwrite(fd, bytes(_LAYOUT.size), 0)  # room is taken now: a full disk is an error here, and a crash later
        return mmap.mmap(fd, _LAYOUT.size)
    finally:
        os.close(fd)


def watch_in(path: Path) -> None:
    """Note from now on, in the file ``path``, what this process and its forks begin."""
    global _slot
    _slot = open_slot(path)


def tell(told: Callable[[int], None]) -> None:
    """Call ``told`` from now on with the index of each op that begins."""
    global _told
    _told = told


def begin(request: int) -> None:
    """A program is about to run; none of its ops has begun."""
    _write(request & 0xFFFFFFFF, 0)


def begin_op(index: int) -> None:
    """Op ``index`` of the program begins."""
    if _told is not None:
        _told(index)
    if _slot is not None:
        _write(_LAYOUT.unpack_from(_slot)[0], index + 1)


def op_begun(slot: mmap.mmap, request: int) -> int | None:
    """The op that was under way when ``request`` was last heard of; None before the first one."""
    number, begun = _LAYOUT.unpack_from(slot)
    return begun - 1 if number == request & 0xFFFFFFFF and begun else None


def _write(request: int, begun: int) -> None:
    if _slot is not None:
        _LAYOUT.pack_into(_slot, 0, request, begun)
