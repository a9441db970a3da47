"""How much a finding of the audit matters: harm x breadth x who reads it x a forgotten pass-through."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fuzz.audit.answers import Answers
from fuzz.audit.reads import STORE, Read

# What a reader meets. The order matters more than the numbers: a crash before a wrong value before a skipped step.
HARM = {
    "crash": 1.0,
    "refused call": 1.5,  # nothing of the mode or the model can save it: certain once the call is made
    "wrong default": 0.6,
    "silent skip": 0.5,
    "wrong child": 0.5,
    "dead twin": 0.3,
    "lost write": 0.15,
    "dropped keyword": 0.1,
}
SIBLING_FORWARDS = 1.4  # another wrapper hands the same name on: this one was most likely forgotten
PRIVATE_PROTOCOL = 0.6  # one kind of backend answers and no wrapper does: most likely between it and its own model
BEHIND_FALSE_FLAG = 0.15  # the reader first asks a flag that this wrapper answers False
OTHER_HARDWARE = 0.5  # of a kind: its wrappers are seldom built elsewhere
GENERIC_READER = 1.0
SHARED_MODEL_READER = 0.6  # code that several models of one family share
MODEL_READER = 0.35  # one model's own file: only that model's backends ever meet it
FURTHER_MODEL = 0.1  # each further model file that reads the same name
HARDWARE_READER = 0.2
SINGLE_MODEL_WRAPPER = 0.6  # a wrapper that one model alone is given
ANOTHER_MODEL = 0.3  # ... and a reader that is most likely another model's
# A path or a function's name that speaks of one maker's hardware.
OTHER_PLATFORM = re.compile(r"hardware_backend/|(?:^|[/_.])(?:npu|hip|rocm|musa|xpu|ascend)(?:$|[_. ])", re.IGNORECASE)
GAP_THRESHOLD = 0.2  # at or above it, most rows of the releases read were true; below it, most were not


ONE_KIND = 1.0 / 4.0  # the breadth of a single kind


def breadth(answers: Answers, children: Iterable[str]) -> float:
    """From a quarter for one kind of backend towards one for many."""
    by_name: dict[str, float] = {}
    by_class: dict[str, float] = {}
    for key in children:
        weight = OTHER_HARDWARE if answers.classes[key].on_other_hardware else 1.0
        ancestor = answers.classes.ancestor(key)
        by_class[ancestor] = max(by_class.get(ancestor, 0.0), weight)
        for kind in answers.kinds.get(key) or {ancestor}:
            by_name[kind] = max(by_name.get(kind, 0.0), weight)
    count = sum(by_name.values())
    if len(by_class) == 1:  # one class under two names is one kind
        count = min(count, *by_class.values())
    return count / (count + 3.0)


def reader_weight(read: Read, files: frozenset[str]) -> float:
    if OTHER_PLATFORM.search(f"{read.file} {read.qualname}"):
        return HARDWARE_READER
    if "/models/" not in read.file:
        return GENERIC_READER if is_generic(read.file) else SHARED_MODEL_READER
    if "common" in read.file.rpartition("/")[0].rpartition("/models/")[2]:
        return SHARED_MODEL_READER
    others = sum("/models/" in f for f in files) - 1
    return min(GENERIC_READER, MODEL_READER + FURTHER_MODEL * others)


def is_generic(file: str) -> bool:
    """Models serve themselves, and `layers/attention/<one kind of attention>/...` serves that kind alone."""
    _, found, rest = file.partition("layers/attention/")
    return "/models/" not in file and not (found and "/" in rest)


def reach(answers: Answers, wrapper: str, reads: Iterable[Read], children: Iterable[str]) -> float:
    """Who reads x how many kinds of backend get there, for the most telling reader; a write tells nothing of one."""
    listed = [r for r in reads if r.access != STORE] or list(reads)
    files = frozenset(r.file for r in listed)
    best, single = 0.0, answers.single_model(wrapper)
    for read in listed:
        weight = reader_weight(read, files)
        if answered_false(answers, wrapper, read.flags):
            weight *= BEHIND_FALSE_FLAG
        if single and not is_generic(read.file):
            weight *= ANOTHER_MODEL
        there = [k for k in children if is_generic(read.file) or answers.admits(read.file, k)]
        there = [k for k in there if answers.classes[k].module.path == read.file] or there
        best = max(best, weight * breadth(answers, answers.named(read, there)))
    return best * (SINGLE_MODEL_WRAPPER if single else 1.0)


FALSE_BODIES = frozenset(
    {
        "value Constant(value=False)",
        "value Constant(value=None)",
        "nothing",
        "Return(value=Constant(value=False))",
    }
)


def answered_false(answers: Answers, wrapper: str, flags: Iterable[str]) -> bool:
    """Whether the wrapper answers one of these flags with a constant False, None or nothing at all."""
    for flag in flags:
        member = answers.classes.lookup(wrapper, flag)
        if member is None:
            if answers.classes.lookup(wrapper, "__getattr__") is None:
                return True
        elif member.body in FALSE_BODIES:
            return True
    return False


def pass_through(answers: Answers, wrapper: str, name: str, children: Iterable[str]) -> float:
    """More for a name that another wrapper answers, less for one that is private to a kind of backend."""
    order = answers.classes.order
    for other in answers.classes.wrappers:
        if other not in order(wrapper) and wrapper not in order(other) and answers.own(other, name) is not None:
            return SIBLING_FORWARDS
    return PRIVATE_PROTOCOL if breadth(answers, children) <= ONE_KIND else 1.0


def score(harm: str, *factors: float) -> float:
    total = HARM[harm]
    for factor in factors:
        total *= factor
    return round(total, 3)
