"""How much a finding of the audit matters: harm x breadth x who reads it x a forgotten pass-through."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.audit.answers import Answers
from fuzz.audit.reads import STORE, Read

# What a reader meets. The order matters more than the numbers: a crash before a wrong value before a skipped step.
HARM = {
    "crash": 1.0,
    "refused call": 0.9,
    "wrong default": 0.6,
    "silent skip": 0.5,
    "wrong child": 0.5,
    "dead twin": 0.4,
    "lost write": 0.15,
    "dropped keyword": 0.1,
}
SIBLING_FORWARDS = 1.4  # another wrapper hands the same name on: this one was most likely forgotten
BEHIND_FALSE_FLAG = 0.15  # the reader first asks a flag that this wrapper answers False
OTHER_HARDWARE = 0.5  # of a kind: its wrappers are seldom built elsewhere
GENERIC_READER = 1.0
SHARED_MODEL_READER = 0.6  # code that several models of one family share
MODEL_READER = 0.35  # one model's own file: only that model's backends ever meet it
FURTHER_MODEL = 0.1  # each further model file that reads the same name
HARDWARE_READER = 0.2
GAP_THRESHOLD = 0.2  # at or above it, most rows of the releases read were true; below it, most were not


def breadth(answers: Answers, children: Iterable[str]) -> float:
    """From a third for one kind of backend towards one for many."""
    kinds: dict[str, float] = {}
    for key in children:
        weight = OTHER_HARDWARE if answers.classes[key].on_other_hardware else 1.0
        family = answers.classes.family(key)
        kinds[family] = max(kinds.get(family, 0.0), weight)
    count = sum(kinds.values())
    return count / (count + 2.0)


def reader_weight(file: str, files: frozenset[str]) -> float:
    if "hardware_backend/" in file:
        return HARDWARE_READER
    if "/models/" not in file:
        return SHARED_MODEL_READER if _is_kernel_folder(file) else GENERIC_READER
    if "common" in file.rpartition("/")[0].rpartition("/models/")[2]:
        return SHARED_MODEL_READER
    others = sum("/models/" in f for f in files) - 1
    return min(GENERIC_READER, MODEL_READER + FURTHER_MODEL * others)


def _is_kernel_folder(file: str) -> bool:
    """`layers/attention/<one kind of attention>/...` serves that kind alone."""
    _, found, rest = file.partition("layers/attention/")
    return bool(found) and "/" in rest


def readers(answers: Answers, wrapper: str, reads: Iterable[Read]) -> float:
    """The weight of the most telling reader; a write tells nothing of a reader."""
    listed = [r for r in reads if r.access != STORE] or list(reads)
    files = frozenset(r.file for r in listed)
    weights = [
        reader_weight(r.file, files) * (BEHIND_FALSE_FLAG if answered_false(answers, wrapper, r.flags) else 1.0)
        for r in listed
    ]
    return max(weights, default=0.0)


def answered_false(answers: Answers, wrapper: str, flags: Iterable[str]) -> bool:
    """Whether the wrapper answers one of these flags with a constant False, None or nothing at all."""
    for flag in flags:
        member = answers.classes.lookup(wrapper, flag)
        if member is None:
            if answers.classes.lookup(wrapper, "__getattr__") is None:
                return True
        elif member.body in ("value Constant(value=False)", "value Constant(value=None)"):
            return True
        elif "Return(value=Constant(value=False))" == member.body:
            return True
    return False


def sibling(answers: Answers, wrapper: str, name: str) -> float:
    order = answers.classes.order
    for other in answers.classes.wrappers:
        if other not in order(wrapper) and wrapper not in order(other) and answers.own(other, name) is not None:
            return SIBLING_FORWARDS
    return 1.0


def score(harm: str, *factors: float) -> float:
    total = HARM[harm]
    for factor in factors:
        total *= factor
    return round(total, 3)
