"""An executor that runs programs as ``fuzz.execute`` does and notes which lines of the target's files ran.

Its lines go to ``executed-<pid>.json`` in the worker's folder after each program that ran new ones.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from fuzz.program import Program
from fuzz.trace import Trace
from stubs import imports

imports.install()  # before anything imports torch or Triton; the worker does so for its usual executor alone

from fuzz import execute as plain

FILES = "executed-*.json"
PACKAGE = f"{os.sep}sglang{os.sep}"

prepare = plain.prepare
available_pairs = plain.available_pairs
speculative_modes = plain.speculative_modes


class _Lines:
    """Lines seen so far, by file. ``left`` holds a code object's lines yet to be seen: one without any is not watched.

    By id, which is cheap, beside the object, which keeps the id its own.
    """

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {}
        self.left: dict[int, tuple[CodeType, set[int]]] = {}
        self.is_new = False

    def call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if PACKAGE not in code.co_filename:
            return None
        watched = self.left.get(id(code))
        if watched is None:
            watched = self.left[id(code)] = code, {line for _, _, line in code.co_lines() if line is not None}
        return self.line if watched[1] else None

    def line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            left = self.left[id(frame.f_code)][1]
            if frame.f_lineno in left:
                left.discard(frame.f_lineno)
                self.seen.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
                self.is_new = True
        return self.line


_LINES = _Lines()


def execute(program: Program) -> Trace:
    """Run ``program``, watched."""
    sys.settrace(_LINES.call)
    try:
        return plain.execute(program)
    finally:
        sys.settrace(None)
        if _LINES.is_new:
            _LINES.is_new = False
            text = json.dumps({name: sorted(lines) for name, lines in _LINES.seen.items()})
            Path(f"executed-{os.getpid()}.json").write_text(text)
