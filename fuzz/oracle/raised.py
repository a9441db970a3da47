"""Who raised an exception, and in whose code: SGLang's, Triton's, or the harness's own."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

from fuzz.place import innermost, is_sglang

# What only passes calls on to stand-ins.
_PASSAGES = ("stubs.kernels.door", "stubs.graph", "stubs.uninitialised")


def first_line(error: BaseException) -> str:
    """The message, on one line and cut."""
    return " ".join(str(error).split())[:240]


def frames(error: BaseException) -> Iterator[FrameType]:
    """Frames from the outermost to the innermost."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def reader_of(error: BaseException) -> str:
    """The innermost place in SGLang, "" without any."""
    return innermost(traceback.extract_tb(error.__traceback__))


def blamed_for(error: BaseException) -> str:
    """The innermost place in SGLang that does more than check: of ``assert_buffer_fits`` its caller, one of many."""
    stack = [frame for frame in traceback.extract_tb(error.__traceback__) if is_sglang(frame.filename)]
    while len(stack) > 1 and _CHECKS.match(stack[-1].name):
        stack.pop()
    return innermost(stack)


_CHECKS = re.compile(r"_?(assert|check|ensure|raise|require|validate)_")


def _room(frame: FrameType) -> str:
    """The room of the frame's module; "" for what only passes calls on to stand-ins."""
    name = str(frame.f_globals.get("__name__", ""))
    return "" if name in _PASSAGES else name.partition(".")[0]


def innermost_is_ours(error: BaseException) -> bool:
    """Whether the error was raised in the harness (not in a library it or SGLang called)."""
    rooms = [room for room in map(_room, frames(error)) if room in ("stubs", "fuzz", "sglang")]
    return bool(rooms) and rooms[-1] != "sglang"


def refused_by_triton(error: BaseException) -> bool:
    """Whether Triton's language itself rejects what a kernel says; our interpreter only stands between the two."""
    return str(list(frames(error))[-1].f_globals.get("__name__", "")).startswith("triton.language.")


def our_place(error: BaseException) -> str:
    """The innermost function of the harness."""
    names = [
        f"{f.f_globals.get('__name__')}.{f.f_code.co_name}" for f in frames(error) if _room(f) in ("stubs", "fuzz")
    ]
    return names[-1] if names else "unknown"


def called_stub(error: BaseException) -> str:
    """The function of ours whose signature a TypeError complains of, else ""."""
    match = refused_call(error)
    if match is None:
        return ""
    name, unexpected = match["name"], match["unexpected"]
    modules = [module for path, module in sys.modules.items() if path.startswith("stubs.")]
    for function in (_within(module, name) for module in modules):
        if not callable(function) or not str(getattr(function, "__module__", "")).startswith("stubs"):
            continue
        # SGLang wraps closed kernels in functions of the same name: ours is meant only if it refuses the call.
        if unexpected is None or "<locals>" in name or unexpected not in inspect.signature(function).parameters:
            return name
    return ""


_CALL_REFUSED = re.compile(
    r"(?P<name>[\w.<>]+)\(\) (missing|takes|got)( an unexpected keyword argument '(?P<unexpected>\w+)')?"
)


def refused_call(error: BaseException) -> re.Match[str] | None:
    """The function's qualified name, where a TypeError says that its signature does not take the call."""
    return _CALL_REFUSED.match(str(error)) if isinstance(error, TypeError) else None


def _within(module: ModuleType, name: str) -> Any:
    """What ``module`` has under a function's qualified name (of a nested function: the one around it), else None."""
    found: Any = module
    for part in name.partition(".<locals>")[0].split("."):
        found = getattr(found, part, None)
    return found
