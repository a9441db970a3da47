"""Contract oracle: what an exception of a step means: a fault of SGLang, a refusal, or our stubs behind the release.

Checks the object that raised, not the message alone: an attribute that one of our stubs lacks is ``stub_gap``; one
that a SGLang object lacks is ``bug``. Does not judge exceptions of the harness itself: those are ``infra``.
"""

from __future__ import annotations

import errno
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

from fuzz.finding import CUDA_FAULT, Signature, Verdict
from fuzz.oracle.device import broken_by
from fuzz.place import innermost
from stubs.graph import ReplayError
from stubs.kernels.contract import ContractBreach, StandInGap
from stubs.refusal import Refused

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # a full disk says nothing of whoever wrote to it
CAUSES_MAX = 8  # the interpreter wraps an error a few times; a longer chain is cut


@dataclass(frozen=True, slots=True)
class Judgement:
    """An exception as the program's finding: everything of a Finding but the op and the mode."""

    verdict: Verdict
    signature: Signature
    title: str
    message: str
    evidence: dict[str, str] = field(default_factory=dict)


def judge(error: BaseException, supplied: tuple[type, ...] = (), met_in: str = "") -> Judgement:
    """Classify ``error``. ``supplied`` are classes of objects that the harness made and handed in (configs, requests).

    ``met_in`` is where a fault of the GPU is put that came to light under no frame of SGLang's.
    """
    root = _root(error)
    if isinstance(root, Refused):
        return _judgement(Verdict.UNSUPPORTED, "contract", "refused", "start-up", root.reason, root)
    if isinstance(root, ContractBreach):
        return _breach(root)
    if isinstance(error, ReplayError):
        kind, place = type(root).__name__, innermost(error.stack)
        title = f"{kind} in {place}, when its graph is replayed: {_first_line(root)}"
        return _judgement(Verdict.BUG, "contract", kind, place, title, root)
    reader = _reader(root)
    broken = broken_by(root)
    if broken is not None:
        oracle, what = broken
        place = reader or met_in or _our_place(root)
        return _judgement(Verdict.BUG, oracle, CUDA_FAULT, place, f"{what}, in {place}", root)
    if isinstance(root, AttributeError) and getattr(root, "name", None):
        return _missing(root, reader, supplied)
    if _from_stand_in(root):
        return _judgement(Verdict.STUB_GAP, "contract", "no_stand_in", _first_line(root), _first_line(root), root)
    if isinstance(root, ImportError) and not str(root.name).startswith("sglang"):
        return _judgement(Verdict.INFRA, "harness", "missing_package", str(root.name), _first_line(root), root)
    if isinstance(root, OSError) and root.errno in _NO_ROOM:
        return _judgement(Verdict.INFRA, "harness", "no_room", reader or _our_place(root), _first_line(root), root)
    if _NO_GPU.search(str(root)):
        return _judgement(Verdict.INFRA, "harness", "no_gpu", reader or _our_place(root), _first_line(root), root)
    if reader and _refused_by_triton(root):
        kind = type(root).__name__
        return _judgement(Verdict.BUG, "contract", kind, reader, f"{kind} in {reader}: {_first_line(root)}", root)
    if not reader or _innermost_is_ours(root):
        return _judgement(Verdict.INFRA, "harness", type(root).__name__, _our_place(root), _first_line(root), root)
    ours = _called_stub(root)
    if ours:
        title = f"{ours} does not take this release's call: {_first_line(root)}"
        return _judgement(Verdict.STUB_GAP, "contract", "stub_call", ours, title, root)
    if isinstance(root, NotImplementedError) and not _hides_override(root):
        return _judgement(Verdict.UNSUPPORTED, "contract", "refused", reader, _first_line(root) or reader, root)
    if isinstance(root, (AssertionError, ValueError)) and _first_line(root) and _says_unsupported(root):
        return _judgement(Verdict.UNSUPPORTED, "contract", "refused", reader, _first_line(root), root)
    kind, refused = type(root).__name__, _refused_call(root)
    if refused:  # one caller calls many: the fault is told by what it cannot call so
        title = f"{kind}: {_first_line(root)}, called by {reader}"
        return _judgement(Verdict.BUG, "contract", kind, refused["name"], title, root, {"reader": reader})
    return _judgement(Verdict.BUG, "contract", kind, reader, f"{kind} in {reader}: {_first_line(root)}", root)


def _missing(root: AttributeError, reader: str, supplied: tuple[type, ...]) -> Judgement:
    owner, name = root.obj, root.name
    cls = owner if isinstance(owner, type) else type(owner)
    place = f"{_name(owner)}.{name}"
    if owner is None:
        held = _none_held_by_stub(root)
        if held:
            title = f"{held} is None in the stub, and {reader} reads {name!r} of it"
            return _judgement(Verdict.STUB_GAP, "contract", "missing_field", f"{held}.{name}", title, root)
    if cls.__module__.partition(".")[0] in ("stubs", "fuzz") or _harness_namespace(owner):
        title = f"{cls.__name__} lacks the field {name!r} that {reader or 'the harness'} reads"
        return _judgement(Verdict.STUB_GAP, "contract", "missing_field", place, title, root)
    if _is_foreign_package(owner):
        return _judgement(Verdict.INFRA, "harness", "missing_package", place, _first_line(root), root)
    if isinstance(owner, supplied) and assigns(cls, str(name)):
        title = f"the {cls.__name__} handed in lacks the field {name!r} that {reader} reads"
        return _judgement(Verdict.STUB_GAP, "contract", "missing_field", place, title, root)
    if not reader:
        return _judgement(Verdict.INFRA, "harness", "AttributeError", _our_place(root), _first_line(root), root)
    if owner is None:  # nothing can be said of None; what can is who read it
        place = f"{reader}.{name}"
    title = f"AttributeError: {cls.__name__} has no {name!r}, read by {reader}"
    evidence = {"object": f"{cls.__module__}.{cls.__qualname__}", "attribute": str(name), "reader": reader}
    return _judgement(Verdict.BUG, "contract", "AttributeError", place, title, root, evidence)


def _name(owner: object) -> str:
    return str(owner.__name__) if isinstance(owner, (type, ModuleType)) else type(owner).__name__


def _is_foreign_package(owner: object) -> bool:
    """A module of another package, torch's sets of compiled operators included: what it lacks is not installed here."""
    return isinstance(owner, ModuleType) and owner.__name__.partition(".")[0] != "sglang"


def _none_held_by_stub(error: BaseException) -> str:
    """``FakeModelRunner.field`` where the None that was read is, or was taken from, such a field of a stub; else "".

    Told by names: ``runner.field.name``, ``alias.name`` after ``alias = runner.field``, ``self.field.name``.
    """
    frames = list(_frames(error))
    code, lineno = frames[-1].f_code, traceback.extract_tb(error.__traceback__)[-1].lineno or 0
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 : lineno]
    read = re.findall(rf"(\w+)\.{re.escape(str(getattr(error, 'name', '')))}\b", lines[-1] if lines else "")
    taken = [
        match for alias in read for match in re.findall(rf"\b{alias} = [\w.]+\.(\w+)$", "".join(lines), re.MULTILINE)
    ]
    stubs = [thing for frame in frames for thing in frame.f_locals.values() if _is_stub(thing)]
    for field_name in [*read, *taken]:
        for stub in stubs:
            if getattr(stub, field_name, 0) is None:
                return f"{type(stub).__name__}.{field_name}"
    return ""


def _is_stub(thing: object) -> bool:
    return type(thing).__module__.partition(".")[0] == "stubs"


def _breach(root: ContractBreach) -> Judgement:
    place = f"{root.function}.{root.argument}"
    return _judgement(Verdict.BUG, "bounds", "contract_breach", place, _first_line(root), root)


def assigns(cls: type, name: str) -> bool:
    """Whether a class sets ``name`` anywhere in its own source: then an instance without it was made wrong by us."""
    pattern = re.compile(rf"\bself\.{re.escape(name)}\b\s*(:[^=\n]+)?=[^=]|^\s+{re.escape(name)}\s*:", re.MULTILINE)
    for base in cls.__mro__[:-1]:
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):
            continue
        if pattern.search(source):
            return True
    return False


def _judgement(
    verdict: Verdict,
    oracle: str,
    kind: str,
    place: str,
    title: str,
    root: BaseException,
    extra: dict[str, str] | None = None,
) -> Judgement:
    trace = "".join(traceback.format_exception(type(root), root, root.__traceback__, limit=-12))
    evidence = {**(extra or {}), "traceback": trace}
    return Judgement(
        verdict,
        Signature(oracle, kind, place[:120]),
        title[:300],
        f"{type(root).__name__}: {_first_line(root)}",
        evidence,
    )


def _root(error: BaseException) -> BaseException:
    """The innermost cause: Triton's interpreter wraps what a kernel raised, sometimes more than once."""
    for _ in range(CAUSES_MAX):
        if type(error).__name__ != "InterpreterError" or error.__cause__ is None:
            break
        error = error.__cause__
    return error


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:240]


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Frames from the outermost to the innermost."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _reader(error: BaseException) -> str:
    return innermost(traceback.extract_tb(error.__traceback__))


def _room(frame: FrameType) -> str:
    """The room of the frame's module; "" for what only passes calls on to stand-ins."""
    name = str(frame.f_globals.get("__name__", ""))
    return "" if name in _PASSAGES else name.partition(".")[0]


_PASSAGES = ("stubs.kernels.door", "stubs.graph", "stubs.uninitialised")


def _innermost_is_ours(error: BaseException) -> bool:
    """Whether the error was raised in the harness (not in a library it or SGLang called)."""
    rooms = [room for room in map(_room, _frames(error)) if room in ("stubs", "fuzz", "sglang")]
    return bool(rooms) and rooms[-1] != "sglang"


def _refused_by_triton(error: BaseException) -> bool:
    """Whether Triton's language itself rejects what a kernel says; our interpreter only stands between the two."""
    return str(list(_frames(error))[-1].f_globals.get("__name__", "")).startswith("triton.language.")


def _our_place(error: BaseException) -> str:
    names = [
        f"{f.f_globals.get('__name__')}.{f.f_code.co_name}" for f in _frames(error) if _room(f) in ("stubs", "fuzz")
    ]
    return names[-1] if names else "unknown"


def _from_stand_in(error: BaseException) -> bool:
    """A function of a stood-in package that nobody wrote was called."""
    return isinstance(error, StandInGap) or (isinstance(error, NotImplementedError) and "stand-in" in str(error))


def _called_stub(error: BaseException) -> str:
    """The function of ours whose signature a TypeError complains of, else ""."""
    match = _refused_call(error)
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


def _refused_call(error: BaseException) -> re.Match[str] | None:
    """The function's qualified name, where a TypeError says that its signature does not take the call."""
    return _CALL_REFUSED.match(str(error)) if isinstance(error, TypeError) else None


def _within(module: ModuleType, name: str) -> Any:
    """What ``module`` has under a function's qualified name (of a nested function: the one around it), else None."""
    found: Any = module
    for part in name.partition(".<locals>")[0].split("."):
        found = getattr(found, part, None)
    return found


def _harness_namespace(owner: object) -> bool:
    """A plain namespace: SGLang makes none of its own for workers; the harness hands such in as stand-ins for them."""
    return type(owner).__name__ == "SimpleNamespace"


def _hides_override(error: BaseException) -> bool:
    """A base class's NotImplementedError on a wrapper one of whose children overrides the method: a lost delegation."""
    frame = list(_frames(error))[-1]
    owner, method = frame.f_locals.get("self"), frame.f_code.co_name
    children = [
        getattr(owner, name, None) for name in ("prefill_backend", "decode_backend", "full_attn_backend", "primary")
    ]
    defined = {base for base in type(owner).__mro__ if method in vars(base)}
    return any(
        method in vars(base)
        for child in children
        if child is not None
        for base in type(child).__mro__
        if base not in defined
    )


_NO_GPU = re.compile(
    r"not compiled with CUDA|[Nn]o CUDA GPUs|no NVIDIA driver|CUDA driver initialization failed"
    r"|busy or unavailable|uncorrectable ECC|no kernel image is available|CUDA out of memory|CUDA error: out of memory"
)
_UNSUPPORTED = re.compile(
    r"not (yet )?(support|implement)|unsupported|only support|only .* supported|does not support|doesn't support|require"
    r"|can only be used with",
    re.IGNORECASE,
)


def _says_unsupported(error: BaseException) -> bool:
    return _UNSUPPORTED.search(str(error)) is not None
