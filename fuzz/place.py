"""Where in SGLang a stack was: the qualified name of its innermost SGLang frame, from file names and lines alone.

For stacks that come as text (a crash or a hang seen from outside) or as a traceback that has left its process.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

# A line of faulthandler's dump, innermost frame first under each thread's heading.
_DUMP_FRAME = re.compile(r'^  File "(?P<filename>.+)", line (?P<lineno>\d+) in (?P<name>.+)$', re.MULTILINE)
_CURRENT_THREAD = re.compile(r"^Current thread .*$", re.MULTILINE)
_SOURCE_BYTES_MAX = 4 << 20  # SGLang's largest module has a few hundred KiB


class Frame(Protocol):
    """One frame, as ``traceback.FrameSummary`` has it."""

    @property
    def filename(self) -> str: ...
    @property
    def lineno(self) -> int | None: ...
    @property
    def name(self) -> str: ...


def innermost(frames: Sequence[Frame]) -> str:
    """``Class.function`` of the last frame (outermost first) whose file is of the package ``sglang``; "" if none is."""
    for frame in reversed(frames):
        if is_sglang(frame.filename):
            return qualified(frame.filename, frame.lineno or 0) or frame.name
    return ""


def innermost_in_dump(dump: str) -> str:
    """The same of faulthandler's text: of the thread that was running, else of the first that was in SGLang."""
    current = list(_CURRENT_THREAD.finditer(dump))
    threads = re.split(r"^Thread .*$", dump[current[-1].end() :] if current else dump, flags=re.MULTILINE)
    for thread in threads:
        for match in _DUMP_FRAME.finditer(thread):
            if is_sglang(match["filename"]):
                return qualified(match["filename"], int(match["lineno"])) or match["name"]
        if current:
            break
    return ""


@lru_cache(maxsize=4096)
def is_sglang(filename: str) -> bool:
    """Whether a file is of the package; a checkout or an environment in a folder of that name does not make it so."""
    folders = [folder for folder in Path(filename).parents if folder.name == "sglang"]
    return any((folder / "__init__.py").is_file() for folder in folders)


@lru_cache(maxsize=4096)  # the same few lines fail again and again, and parsing a module takes some 100 ms
def qualified(filename: str, lineno: int) -> str:
    """The classes and functions around a line of a source file, joined by dots; "" where they cannot be told."""
    path = Path(filename)
    try:
        if path.stat().st_size > _SOURCE_BYTES_MAX:
            return ""
        node: ast.AST = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ""
    names: list[str] = []
    inner: ast.AST | None = node
    while inner is not None:
        inner = next((scope for scope in _scopes(inner) if scope.lineno <= lineno <= (scope.end_lineno or 0)), None)
        if inner is not None:
            names.append(inner.name)
    return ".".join(names)


def _scopes(node: ast.AST) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The classes and functions nearest below ``node``, also below its ifs and withs."""
    found: list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(child)
        else:
            found += _scopes(child)
    return found
