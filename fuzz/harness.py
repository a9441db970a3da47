"""An executor that runs programs as ``fuzz.execute`` does and tells which blocks of the target's code ran, by atheris.

atheris puts a call at the head of each basic block of what is imported; here those calls fill a set that is
read after each program. Its loop around libFuzzer is not used, see ``fuzz.guided``. Beside the code: each launch of a
kernel, with what of its arguments decides its course.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

try:
    import atheris
except ImportError as error:
    raise ImportError(
        f"{error}; --engine atheris needs it where the workers run: pip install 'seamripper[fuzz]'"
    ) from None

from stubs import imports

imports.install()  # before anything imports torch or Triton; the worker does so for its usual executor alone

from fuzz import execute as plain
from fuzz import slot
from fuzz.blocks import blocks
from fuzz.features import code_number
from fuzz.oracle import ORACLES
from fuzz.program import Program
from fuzz.trace import Trace
from stubs import interpreter
from stubs.sglang_imports import WATCHED

CALL = "_trace_branch"  # the function of atheris that instrumented code calls by this name, with the block's number

available_pairs = plain.available_pairs
speculative_modes = plain.speculative_modes

_BLOCKS: set[int] = set()  # as atheris numbers them, of the op under way
_LAUNCHES: set[str] = set()
_NAMES: dict[int, str] = {}  # block -> what it is called in every process
_OPS: list[tuple[int, ...]] = []  # what each op before that one was the first to show
_SEEN: set[int] = set()


def prepare() -> str:
    """Import the target, instrumented; its version."""
    if not hasattr(atheris, CALL):
        raise ImportError(f"atheris has no {CALL} any more; expected one of the versions that pyproject.toml names")
    setattr(atheris, CALL, _BLOCKS.add)
    sys.meta_path.insert(0, _Finder())
    version = plain.prepare()
    interpreter.watch(_note_launch)
    slot.tell(_begin_op)
    return version


def execute(program: Program, oracles: Sequence[plain.Oracle] = ORACLES) -> Trace:
    """Run ``program``; its trace has the features of the code beside."""
    for one in (_BLOCKS, _LAUNCHES, _OPS, _SEEN):
        one.clear()
    trace = plain.execute(program, oracles)
    if trace.steps:
        _end_op()
    return replace(trace, features=tuple(_OPS))


def _begin_op(index: int) -> None:
    if index == 0:
        _OPS.clear()  # the program runs again, with a name supplied that was missing (see fuzz.unmask)
        _SEEN.clear()
    else:
        _end_op()


def _end_op() -> None:
    shown = {code_number(text) for text in (*(_NAMES[block] for block in _BLOCKS), *_LAUNCHES)} - _SEEN
    _OPS.append(tuple(sorted(shown)))
    _SEEN.update(shown)
    _BLOCKS.clear()
    _LAUNCHES.clear()


class _Finder(MetaPathFinder):
    """Has what is watched loaded by ``_Loader``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(fullname == name or fullname.startswith(f"{name}.") for name in WATCHED):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        code = super().get_code(fullname)
        if code is None:
            return None
        # No data flow: that would put a function of atheris in place of every comparison of the target.
        watched: CodeType = atheris.patch_code(code, False)
        for block, name in blocks(watched, fullname, CALL):
            _NAMES[block] = name
        return watched


def _note_launch(kernel: str, arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        if value is None or isinstance(value, (bool, str)):
            _LAUNCHES.add(f"launch {kernel} {name}={value}")
        elif isinstance(value, int):  # a size or a stride: its order tells enough
            _LAUNCHES.add(f"launch {kernel} {name}~{value.bit_length()}")
    _LAUNCHES.add(f"launch {kernel} " + " ".join(name for name, value in arguments.items() if value is None))
