"""An executor that runs programs as ``fuzz.execute`` does and tells which blocks of the target's code ran, by atheris.

atheris puts a call at the head of each basic block of what is imported; here those calls fill a set that is
read after each program. Its loop around libFuzzer is not used, see ``fuzz.guided``. Beside the code: each launch of a
kernel, with what of its arguments decides its course.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from stubs import imports

imports.install()  # before anything imports torch or Triton; the worker does so for its usual executor alone

try:
    import atheris
except ImportError as error:
    raise ImportError(
        f"{error}: --engine atheris needs it where the workers run; pip install 'seamripper[fuzz]'"
    ) from None

from fuzz import execute as plain
from fuzz.features import code_number
from fuzz.program import Program
from fuzz.trace import Trace
from stubs import interpreter
from stubs.sglang_imports import WATCHED

CALL = "_trace_branch"  # the function of atheris that instrumented code calls by this name, with the block's number

available_pairs = plain.available_pairs
speculative_modes = plain.speculative_modes

_BLOCKS: set[int] = set()  # as atheris numbers them, of the program under way
_LAUNCHES: set[str] = set()
_NAMES: dict[int, str] = {}  # block -> what it is called in every process


def prepare() -> str:
    """Import the target, instrumented; its version."""
    if not hasattr(atheris, CALL):
        raise ImportError(f"atheris has no {CALL} any more; expected one of the versions that pyproject.toml names")
    setattr(atheris, CALL, _BLOCKS.add)
    sys.meta_path.insert(0, _Finder())
    version = plain.prepare()
    interpreter.watch(_note_launch)
    return version


def execute(program: Program) -> Trace:
    """Run ``program``; its trace has the features of the code beside."""
    _BLOCKS.clear()
    _LAUNCHES.clear()
    trace = plain.execute(program)
    shown = [*(_NAMES[block] for block in _BLOCKS), *_LAUNCHES]
    return replace(trace, features=tuple(sorted(set(map(code_number, shown)))))


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
        for block, name in _blocks(watched, fullname):
            _NAMES[block] = name
        return watched


def _blocks(code: CodeType, inside: str) -> Iterator[tuple[int, str]]:
    """atheris's number of each block, and a name: numbers are given out in no order that is kept, names by place."""
    name = f"{inside}.{code.co_name}"
    is_called, place = False, 0
    for instruction in dis.get_instructions(code):
        if is_called and type(instruction.argval) is int and instruction.opname.startswith("LOAD"):
            yield instruction.argval, f"{name} {place}"
            is_called, place = False, place + 1
        elif instruction.argval == CALL:
            is_called = True
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _blocks(constant, name)


def _note_launch(kernel: str, arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        if value is None or isinstance(value, (bool, str)):
            _LAUNCHES.add(f"launch {kernel} {name}={value}")
        elif isinstance(value, int):  # a size or a stride: its order tells enough
            _LAUNCHES.add(f"launch {kernel} {name}~{value.bit_length()}")
    _LAUNCHES.add(f"launch {kernel} " + " ".join(name for name, value in arguments.items() if value is None))
