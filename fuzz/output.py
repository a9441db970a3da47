"""A file that a worker writes to while its parent reads: its size, its end, and a bound on its growth."""

from __future__ import annotations

import os
from pathlib import Path


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def tail(path: Path, start: int, length: int) -> str:
    """At most the last ``length`` bytes of what was written to ``path`` after ``start``."""
    try:
        with path.open("rb") as file:
            file.seek(max(start, size(path) - length))
            return file.read(length).decode(errors="replace")
    except FileNotFoundError:
        return ""


def trim(path: Path, bytes_max: int) -> int:
    """The size of ``path``, emptied first if it has more than ``bytes_max``; its writer appends and does not notice."""
    if size(path) > bytes_max:
        os.truncate(path, 0)
    return size(path)
