"""Writes an audit's gap as a file that says what is wrong, and that `replay`, `compare` and `bisect` take."""

from __future__ import annotations

from pathlib import Path

from fuzz.audit import Row
from fuzz.finding import Signature
from fuzz.repro import AUDIT
from fuzz.script import one_line, templates
from fuzz.store import write_whole


def gap_signature(row: Row) -> Signature:
    return Signature(AUDIT, row.answer, f"{row.wrapper}.{row.name}")


def write_gap(row: Row, found_on: str, command: str) -> str:
    """The file's text. ``found_on`` is the spec of the target that was read."""
    title = one_line(f"{row.wrapper}.{row.name} is {row.answer}: {row.why}").rstrip(".")
    values = {"title": title, "found_on": found_on, "command": command, "signature": str(gap_signature(row))}
    return templates().get_template("gap.py.jinja").render(values).strip("\n") + "\n"


def save_gap(folder: Path, row: Row, found_on: str, command: str, prefix: str = "") -> Path:
    """One file a signature. Raises StoreError."""
    path = folder / f"{prefix}{gap_signature(row).slug}.py"
    write_whole(path, write_gap(row, found_on, command))
    return path
