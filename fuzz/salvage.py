"""Reads what an earlier run left, of which a disk or a kill may have spoiled a part: that is set aside, never a stop.

What cannot be read goes to ``<name>.broken`` beside the file, whole, and is told in a line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fuzz.store import append, write_whole

T = TypeVar("T")
Tell = Callable[[str], None]


def lines_of(path: Path, parse: Callable[[str], T], tell: Tell) -> list[T]:
    """Every line that ``parse`` takes (it raises ValueError for others); the file is left with those alone.

    Raises StoreError where what is spoiled cannot be set aside.
    """
    found: list[T] = []
    good: list[str] = []
    broken: list[str] = []
    data = path.read_bytes() if path.exists() else b""
    for number, raw in enumerate(data.splitlines(keepends=True), start=1):
        try:
            text = raw.decode()
            if not text.endswith("\n"):
                raise ValueError("half a line, cut off by a kill or a full disk")
            found.append(parse(text.rstrip("\n")))
            good.append(text)
        except ValueError as error:
            broken.append(raw.decode(errors="replace").rstrip("\n"))
            tell(f"{path} line {number}: {error}; set aside in {_aside(path).name}")
    if broken:
        append(_aside(path), broken)
        write_whole(path, "".join(good), durable=True)
    return found


def whole_of(path: Path, parse: Callable[[str], T], tell: Tell) -> T | None:
    """What ``parse`` makes of a file of one line; None where there is no file, or where it is set aside."""
    if not path.exists():
        return None
    text = path.read_bytes().decode(errors="replace")
    try:
        return parse(text)
    except ValueError as error:
        tell(f"{path}: {error}; set aside in {_aside(path).name}")
        append(_aside(path), [text])
        path.unlink()
        return None


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.broken")
