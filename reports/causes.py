"""Which finding follows from which: where the smallest program that shows one shows another, nearer to the cause, too."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from fuzz.confirm import TRIAL_RUNS
from fuzz.finding import ANSWERED, Signature


def follows_of(findings: pd.DataFrame) -> pd.Series[str]:
    """For each finding the signature of the one that it follows from, itself following from none; "" for most.

    A follows from B where A's saved program, which was made as small as it would go without any other fault than it had,
    still shows B, and B's oracle looks nearer to the cause. Of two by oracles that look alike, the one that shows by itself
    is the cause of the one that does not; where neither does, they are one fault, named by the one found first. From a
    breach of contract that was answered all the same nothing follows but another. Only a guess: two faults that one program
    cannot show apart look the same.
    """
    names = findings["signature"].tolist()
    ranks = {name: Signature.parse(name).rank for name in names}
    order = {name: (ranks[name], seconds, name) for name, seconds in zip(names, findings["first_seconds"], strict=True)}
    beside = {name: set(text.splitlines()) for name, text in zip(names, findings["beside"], strict=True)}
    answered = {name for name, told in zip(names, findings["evidence"], strict=True) if ANSWERED in told}
    made_small = set(findings["signature"][findings["runs"] > TRIAL_RUNS])

    def may_cause(one: str, other: str) -> bool:
        if ranks[one] != ranks[other]:
            return one not in answered and ranks[one] < ranks[other]
        return other in beside[one] or other in made_small

    causes = {name: {one for one in beside[name] & order.keys() if may_cause(one, name)} for name in names}
    reached = {name: _reached(causes, name) for name in names}
    firsts = [min(_lasting(reached, name), key=order.__getitem__) for name in names]
    follows = ["" if first == name else first for name, first in zip(names, firsts, strict=True)]
    return pd.Series(follows, index=findings.index, dtype="string")


def _reached(causes: Mapping[str, set[str]], name: str) -> set[str]:
    """``name``, its causes, theirs, and so on."""
    reached, left = {name}, [name]
    while left:
        new = causes[left.pop()] - reached
        reached |= new
        left += new
    return reached


def _lasting(reached: Mapping[str, set[str]], name: str) -> list[str]:
    """Of what ``name`` comes to, that from which one can but come back: it follows from nothing else."""
    return [one for one in reached[name] if all(one in reached[other] for other in reached[one])]
