"""What a test of pass-through has to ask of each wrapper, derived from the audit of a release."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from fuzz.audit.answers import Answers
from fuzz.audit.checks import unanswered
from fuzz.audit.classes import Member
from fuzz.audit.reads import CALL, STORE
from fuzz.audit.rows import OWN, Check, Wrapper


def describe(answers: Answers, wrapper: str) -> Wrapper:
    slots = {p for parameter in answers.classes.slots(wrapper).values() for p in parameter.split("|")}
    reads = {
        (read.name, read.access == CALL)
        for ancestor in answers.classes.order(wrapper)
        for read in answers.forwards.get(ancestor, [])
        if read.qualname.endswith(".__init__") and read.access != STORE
    }
    backend = answers.classes[wrapper]
    return Wrapper(backend.name, backend.module.name, tuple(sorted(slots)), tuple(sorted(reads)))


def checklist(answers: Answers, wrapper: str, *, asked_for: bool) -> Iterator[Check]:
    """The gaps, and the names that the wrapper answers by asking a child: the first must be mended, the second stay.

    Wrappers for other hardware do not import without it, and those of a single model are its authors' business: these
    two only where `asked_for` by name.
    """
    if not asked_for and (answers.classes[wrapper].on_other_hardware or answers.single_model(wrapper)):
        return
    gaps = {row.name for row in unanswered(answers, wrapper) if row.gap}
    slots = answers.classes.slots(wrapper)
    for name in answers.names(wrapper):
        children = answers.children(wrapper, name)
        asked = answers.forwarded(wrapper, name)
        own = answers.answer(wrapper, name) == OWN and bool(asked) and not answers.inherited(wrapper, name)
        if name.startswith("_") or name in slots or not children or not (own or name in gaps):
            continue
        yield _check(answers, wrapper, name, children, tuple(sorted(asked)))


def _check(answers: Answers, wrapper: str, name: str, children: dict[str, Member], slots: tuple[str, ...]) -> Check:
    functions = [m.function for m in children.values() if m.function is not None]
    default = answers.default(name)
    called = len(functions) * 2 > len(children)
    return Check(
        wrapper=answers.classes[wrapper].name,
        name=name,
        kind="call" if called else "value",
        value="" if called else _value(default, children),
        parameters=_usual(Counter(_parameters(f) for f in functions)) if called else (),
        slots=slots,
        per_mode=answers.selects(wrapper, name),
        on_base=default is not None,
    )


def _usual(seen: Counter[tuple[str, ...]]) -> tuple[str, ...]:
    """What most ask for, and of equals the longest: a bare `*args` tells nothing."""
    return max(seen, key=lambda parameters: (seen[parameters], len(parameters), parameters))


def _parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    """Those without a default: what a caller must give."""
    spec = function.args
    positional = [p.arg for p in (*spec.posonlyargs, *spec.args)][1:]
    return tuple(positional[: len(positional) - len(spec.defaults)])


def _value(default: Member | None, children: dict[str, Member]) -> str:
    """What most children answer where it can be told, and never the base default: that would prove nothing."""
    told = Counter(t for t in (_told(m) for m in children.values()) if t)
    told.pop(_told(default) if default is not None else "", None)
    return told.most_common(1)[0][0] if told else ""


def _told(member: Member) -> str:
    if not isinstance(member.node, ast.expr):
        return ""
    text = ast.unparse(member.node)
    for holder in ("model_runner.", "runner."):
        if text.startswith(holder) and text.replace(".", "").replace("_", "").isalnum():
            return f"runner:{text.removeprefix(holder)}"
    return text if isinstance(member.node, ast.Constant) and member.node.value is not None else ""
