"""The checks of the audit: each turns the answers of a wrapper into candidate rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzz.audit import rank
from fuzz.audit.answers import Answers
from fuzz.audit.classes import Member
from fuzz.audit.reads import CALL, GUARDED, STORE, Read
from fuzz.audit.rows import MISSING, OWN, SHADOWED, SIGNATURE, TWIN, WRONG_CHILD, Reader, Row
from fuzz.audit.signatures import mismatch, takes_keywords

Check = Callable[[Answers, str], Iterator[Row]]


def make_row(
    answers: Answers,
    wrapper: str,
    name: str,
    answer: str,
    harm: str,
    why: str,
    reads: list[Read],
    children: dict[str, Member],
    weight: float = 1.0,
) -> Row:
    total = rank.score(harm, rank.reach(answers, wrapper, reads, children), weight)
    return Row(
        wrapper=answers.classes[wrapper].name,
        name=name,
        answer=answer,
        children=tuple(sorted((answers.classes[k].name, m.shown) for k, m in children.items())),
        readers=tuple(sorted({Reader(r.reader, r.access) for r in reads})),
        harm=harm,
        score=total,
        why=why,
        gap=total >= rank.GAP_THRESHOLD,
    )


def unanswered(answers: Answers, wrapper: str) -> Iterator[Row]:
    """Names that the wrapper lacks, or leaves at the base default, while a backend below it answers them."""
    for name in answers.names(wrapper):
        answer, children = answers.answer(wrapper, name), answers.children(wrapper, name)
        if answer not in (MISSING, SHADOWED) or not children or answers.inherited(wrapper, name):
            continue
        reads = answers.reads(wrapper, name)
        harm, why = _harm(answers, name, answer, reads)
        weight = rank.pass_through(answers, wrapper, name, children)
        if weight > 1.0:
            why += "; another wrapper answers it"
        yield make_row(answers, wrapper, name, answer, harm, why, reads, children, weight)


def _harm(answers: Answers, name: str, answer: str, reads: list[Read]) -> tuple[str, str]:
    accesses = {r.access for r in reads}
    if accesses == {STORE}:
        return "lost write", "written on the wrapper, where the backend below never looks"
    if answer == MISSING:
        if accesses <= {GUARDED, STORE}:
            return "silent skip", "asked for behind hasattr or getattr: absent, the step is skipped in silence"
        return "crash", "read without a guard: AttributeError"
    default = answers.default(name)
    if default is not None and default.refuses and CALL in accesses:
        return "crash", "the inherited default raises NotImplementedError"
    shown = default.shown if default is not None else ""
    return "wrong default", f"the inherited default ({shown}) answers instead of the backend below"


def caller_signatures(answers: Answers, wrapper: str) -> Iterator[Row]:
    """Calls that the wrapper's own signature refuses."""
    for name in answers.names(wrapper):
        member = answers.classes.lookup(wrapper, name)
        if member is None or member.function is None or answers.inherited(wrapper, name):
            continue
        refused = {r: mismatch(r.shape, member.function) for r in answers.reads(wrapper, name) if r.shape is not None}
        bad = {r: reason for r, reason in refused.items() if reason is not None}
        taken_by = {
            key: child
            for key, child in answers.children(wrapper, name).items()
            if key in answers.classes.leaves  # a wrapper that takes anything says nothing of who can serve it
            if child.function is not None and any(mismatch(r.shape, child.function) is None for r in bad if r.shape)
        }
        if bad and taken_by:
            reason = next(iter(bad.values()))
            why = f"{member.owner}.{name} {reason} by its caller, which the backend below would take"
            yield make_row(answers, wrapper, name, SIGNATURE, "refused call", why, list(bad), taken_by)


def child_signatures(answers: Answers, wrapper: str) -> Iterator[Row]:
    """The wrapper's own calls that a child's signature refuses."""
    by_name: dict[str, list[Read]] = {}
    for read in answers.forwards.get(wrapper, []):
        if read.shape is not None:
            by_name.setdefault(read.name, []).append(read)
    for name, reads in sorted(by_name.items()):
        refusing: dict[str, Member] = {}
        reasons: list[str] = []
        for read in reads:
            for key, child, reason in _refusals(answers, wrapper, read):
                refusing[key] = child
                reasons.append(f"{answers.classes[key].name}.{name} {reason}")
        if refusing:
            outside = answers.reads(wrapper, name) or reads
            why = f"the wrapper's own call: {min(reasons)}"
            yield make_row(answers, wrapper, name, SIGNATURE, "refused call", why, outside, refusing)


def _refusals(answers: Answers, wrapper: str, read: Read) -> Iterator[tuple[str, Member, str]]:
    assert read.shape is not None
    for owner, parameter in read.receiver.slots:
        below = answers.nesting.children(wrapper if wrapper in answers.classes.heirs(owner) else owner, parameter)
        for key in below:
            child = answers.classes.lookup(key, read.name)
            if child is not None and child.function is not None:
                reason = mismatch(read.shape, child.function)
                if reason is not None:
                    yield key, child, reason


def dropped_keywords(answers: Answers, wrapper: str) -> Iterator[Row]:
    """Keywords of callers that the wrapper passes on in `**kwargs` to a child that takes none."""
    for name in answers.names(wrapper):
        forwards = [r for r in answers.forwards.get(wrapper, []) if r.name == name and r.shape]
        member = answers.classes.lookup(wrapper, name)
        if answers.inherited(wrapper, name) or member is None or member.function is None:
            continue
        if not any(r.shape and r.shape.unpacks_keywords for r in forwards):
            continue
        spec = member.function.args
        known = {p.arg for p in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
        calls = [r for r in answers.reads(wrapper, name) if r.shape is not None and r.shape.keywords - known]
        extra = {k for r in calls for k in (r.shape.keywords - known if r.shape else ())}
        refusing = {
            key: child
            for read in forwards
            for owner, parameter in read.receiver.slots
            for key in answers.nesting.children(owner, parameter)
            for child in [answers.classes.lookup(key, name)]
            if child and child.function and not takes_keywords(child.function, extra)
        }
        if extra and refusing:
            why = f"callers pass {', '.join(sorted(extra))}, handed on in **kwargs to a child that takes none"
            yield make_row(answers, wrapper, name, SIGNATURE, "dropped keyword", why, calls, refusing)


def twins(answers: Answers, wrapper: str) -> Iterator[Row]:
    """Two plain defs of one name in one class body: Python keeps the second, whatever the first was for."""
    for first, second in answers.classes[wrapper].twins:
        name = second.node.name
        member = answers.classes[wrapper].members[name]
        reads = [r for r in answers.reads(wrapper, name) if r.access != STORE]
        children = answers.children(wrapper, name) or {wrapper: member}
        lines = f"lines {first.node.lineno} and {second.node.lineno}"
        why = f"defined twice in one class body ({lines}); the first is dead"
        row = make_row(answers, wrapper, name, TWIN, "dead twin", why, reads, children)
        # A fact of the source, whoever reads it.
        yield replace(row, score=rank.score("dead twin"), gap=rank.score("dead twin") >= rank.GAP_THRESHOLD)


PHASES = {"prefill": ("prefill", "extend"), "decode": ("decode",)}


def wrong_child(answers: Answers, wrapper: str) -> Iterator[Row]:
    """Names handed to one child alone, though another child may serve the mode that the reader is about.

    Told from words (a name that speaks of prefill handed to the decode child) and from company (the same reader also
    calls a method that the wrapper hands to both children, so it works for both).
    """
    slots = {p for parameter in answers.classes.slots(wrapper).values() for p in parameter.split("|")}
    served = {phase: s for phase, words in PHASES.items() for s in slots if any(w in s for w in words)}
    if len(served) < len(PHASES):
        return
    for name in answers.names(wrapper):
        asked = answers.forwarded(wrapper, name)
        if answers.answer(wrapper, name) != OWN or len(asked) != 1 or answers.inherited(wrapper, name):
            continue
        children = _dissenting(answers, wrapper, name)
        if not children:
            continue
        reads = [r for r in answers.reads(wrapper, name) if r.access != STORE]
        reason = _reason(answers, wrapper, name, next(iter(asked)), served)
        if reason:
            yield make_row(answers, wrapper, name, WRONG_CHILD, "wrong child", reason, reads, children)


def _dissenting(answers: Answers, wrapper: str, name: str) -> dict[str, Member]:
    """The leaves that answer otherwise than the base default, or than most leaves: who is asked matters for them."""
    leaves = {k: m for k, m in answers.children(wrapper, name).items() if k in answers.classes.leaves}
    default = answers.default(name)
    if not leaves or (default is not None and not default.refuses):
        return leaves
    usual = Counter(m.body for m in leaves.values()).most_common(1)[0][0]
    return {k: m for k, m in leaves.items() if m.body != usual}


def _reason(answers: Answers, wrapper: str, name: str, asked: str, served: dict[str, str]) -> str:
    for phase, slot in served.items():
        if _speaks_of(name, phase):
            return f"handed to {asked} alone, though the name speaks of {phase}" if slot != asked else ""
    classes = {r.reader.rpartition(".")[0] for r in answers.reads(wrapper, name) if not r.inside}
    for other in answers.names(wrapper):
        drives_both = set(served.values()) <= answers.forwarded(wrapper, other) and not answers.selects(wrapper, other)
        company = {r.reader.rpartition(".")[0] for r in answers.reads(wrapper, other) if not r.inside}
        if other != name and drives_both and classes & company:
            return f"handed to {asked} alone, though its reader drives both children through {other}"
    return ""


def _speaks_of(text: str, phase: str) -> bool:
    others = [w for p, words in PHASES.items() if p != phase for w in words]
    return any(w in text for w in PHASES[phase]) and not any(w in text for w in others)


CHECKS: tuple[Check, ...] = (unanswered, caller_signatures, child_signatures, dropped_keywords, twins, wrong_child)
