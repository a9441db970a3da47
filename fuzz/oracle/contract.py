"""Contract oracle: what an exception of a step means: a fault of SGLang, a refusal, or our stubs behind the release.

Checks the object that raised, not the message alone: an attribute that one of our stubs lacks is ``stub_gap``; one
that a SGLang object lacks is ``bug``. Does not judge exceptions of the harness itself: those are ``infra``.
"""

from __future__ import annotations

import errno
import inspect
import linecache
import re
import traceback
from dataclasses import dataclass, field
from types import ModuleType

from fuzz.finding import BREACH, CUDA_FAULT, TITLE_MAX, Signature, Verdict
from fuzz.oracle.bounds import place_of
from fuzz.oracle.device import broken_by
from fuzz.oracle.lost import Lost, lost_in
from fuzz.oracle.raised import (
    blamed_for,
    called_stub,
    first_line,
    frames,
    innermost_is_ours,
    our_place,
    reader_of,
    refused_by_triton,
    refused_call,
)
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
        title = f"{kind} in {place}, when its graph is replayed: {first_line(root)}"
        return _judgement(Verdict.BUG, "contract", kind, place, title, root)
    reader = reader_of(root)
    broken = broken_by(root)
    if broken is not None:
        oracle, what = broken
        place = reader or met_in or our_place(root)
        return _judgement(Verdict.BUG, oracle, CUDA_FAULT, place, f"{what}, in {place}", root)
    if isinstance(root, AttributeError) and getattr(root, "name", None):
        return _missing(root, reader, supplied)
    return _not_had(root, reader) or _of_ours(root, reader) or _of_sglang(root, reader)


def _not_had(root: BaseException, reader: str) -> Judgement | None:
    """What this machine, or the harness, does not have."""
    line = first_line(root)
    if _from_stand_in(root):
        return _judgement(Verdict.STUB_GAP, "contract", "no_stand_in", line, line, root)
    if isinstance(root, ImportError) and not str(root.name).startswith("sglang"):
        return _judgement(Verdict.INFRA, "harness", "missing_package", str(root.name), line, root)
    if isinstance(root, OSError) and root.errno in _NO_ROOM:
        return _judgement(Verdict.INFRA, "harness", "no_room", reader or our_place(root), line, root)
    if _NO_GPU.search(str(root)):
        return _judgement(Verdict.INFRA, "harness", "no_gpu", reader or our_place(root), line, root)
    return None


def _of_ours(root: BaseException, reader: str) -> Judgement | None:
    """What the harness raised, or refused to be called with."""
    if reader and refused_by_triton(root):
        return None
    if not reader or innermost_is_ours(root):
        return _judgement(Verdict.INFRA, "harness", type(root).__name__, our_place(root), first_line(root), root)
    ours = called_stub(root)
    if ours:
        title = f"{ours} does not take this release's call: {first_line(root)}"
        return _judgement(Verdict.STUB_GAP, "contract", "stub_call", ours, title, root)
    return None


def _of_sglang(root: BaseException, reader: str) -> Judgement:
    """What SGLang, or Triton for it, raised: a refusal in its own words, or a fault."""
    kind, line = type(root).__name__, first_line(root)
    if not refused_by_triton(root):
        if isinstance(root, NotImplementedError) and not _hides_override(root):
            return _judgement(Verdict.UNSUPPORTED, "contract", "refused", reader, line or reader, root)
        if isinstance(root, (AssertionError, ValueError)) and line and _says_unsupported(root):
            return _judgement(Verdict.UNSUPPORTED, "contract", "refused", reader, line, root)
        refused = refused_call(root)
        if refused:  # one caller calls many: the fault is told by what it cannot call so
            title = f"{kind}: {line}, called by {reader}"
            return _judgement(Verdict.BUG, "contract", kind, refused["name"], title, root, {"reader": reader})
    lost = lost_in(root)
    if lost is not None:
        return _lost(lost, root, reader)
    blamed = blamed_for(root)
    evidence = {} if blamed == reader else {"reader": reader}
    return _judgement(Verdict.BUG, "contract", kind, blamed, f"{kind} in {blamed}: {line}", root, evidence)


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
        return _judgement(Verdict.INFRA, "harness", "missing_package", place, first_line(root), root)
    if isinstance(owner, supplied) and assigns(cls, str(name)):
        title = f"the {cls.__name__} handed in lacks the field {name!r} that {reader} reads"
        return _judgement(Verdict.STUB_GAP, "contract", "missing_field", place, title, root)
    if not reader:
        return _judgement(Verdict.INFRA, "harness", "AttributeError", our_place(root), first_line(root), root)
    if owner is None:  # nothing can be said of None; what can is who read it
        place = f"{reader}.{name}"
    title = f"AttributeError: {cls.__name__} has no {name!r}, read by {reader}"
    evidence = {"object": f"{cls.__module__}.{cls.__qualname__}", "attribute": str(name), "reader": reader}
    return _judgement(Verdict.BUG, "contract", "AttributeError", place, title, root, evidence)


def _lost(lost: Lost, root: BaseException, reader: str) -> Judgement:
    """An answer of None that a wrapper passes on: a missing attribute is the same fault, whoever asks for it."""
    kind = AttributeError.__name__ if lost.lacks else type(root).__name__
    fault = f"has no {lost.name!r}" if lost.lacks else f"says None for {lost.name!r}"
    title = f"{kind}: {lost.loser.__name__} {fault}, read by {reader}"
    evidence = {"reader": reader, "asked": lost.asked.__name__, "has it": lost.knower.__name__}
    return _judgement(Verdict.BUG, "contract", kind, f"{lost.loser.__name__}.{lost.name}", title, root, evidence)


def _name(owner: object) -> str:
    return str(owner.__name__) if isinstance(owner, (type, ModuleType)) else type(owner).__name__


def _is_foreign_package(owner: object) -> bool:
    """A module of another package, torch's sets of compiled operators included: what it lacks is not installed here."""
    return isinstance(owner, ModuleType) and owner.__name__.partition(".")[0] != "sglang"


def _none_held_by_stub(error: BaseException) -> str:
    """``FakeModelRunner.field`` where the None that was read is, or was taken from, such a field of a stub; else "".

    Told by names: ``runner.field.name``, ``alias.name`` after ``alias = runner.field``, ``self.field.name``.
    """
    passed = list(frames(error))
    code, lineno = passed[-1].f_code, traceback.extract_tb(error.__traceback__)[-1].lineno or 0
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 : lineno]
    read = re.findall(rf"(\w+)\.{re.escape(str(getattr(error, 'name', '')))}\b", lines[-1] if lines else "")
    taken = [
        match for alias in read for match in re.findall(rf"\b{alias} = [\w.]+\.(\w+)$", "".join(lines), re.MULTILINE)
    ]
    stubs = [thing for frame in passed for thing in frame.f_locals.values() if _is_stub(thing)]
    for field_name in [*read, *taken]:
        for stub in stubs:
            if getattr(stub, field_name, 0) is None:
                return f"{type(stub).__name__}.{field_name}"
    return ""


def _is_stub(thing: object) -> bool:
    return type(thing).__module__.partition(".")[0] == "stubs"


def _breach(root: ContractBreach) -> Judgement:
    return _judgement(Verdict.BUG, "bounds", BREACH, place_of(root), first_line(root), root)


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
        title[:TITLE_MAX],
        f"{type(root).__name__}: {first_line(root)}",
        evidence,
    )


def _root(error: BaseException) -> BaseException:
    """The innermost cause: Triton's interpreter wraps what a kernel raised, sometimes more than once."""
    for _ in range(CAUSES_MAX):
        if type(error).__name__ != "InterpreterError" or error.__cause__ is None:
            break
        error = error.__cause__
    return error


def _from_stand_in(error: BaseException) -> bool:
    """A function of a stood-in package that nobody wrote was called."""
    return isinstance(error, StandInGap) or (isinstance(error, NotImplementedError) and "stand-in" in str(error))


def _harness_namespace(owner: object) -> bool:
    """A plain namespace: SGLang makes none of its own for workers; the harness hands such in as stand-ins for them."""
    return type(owner).__name__ == "SimpleNamespace"


def _hides_override(error: BaseException) -> bool:
    """A base class's NotImplementedError on a wrapper one of whose children overrides the method: a lost delegation."""
    frame = list(frames(error))[-1]
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
