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
    is the cause of the one that does not; where neither does, the one found first. From a breach of contract that was
    answered all the same nothing follows but another. Only a guess: two faults that one program cannot show apart look
    the same.
    """
    names = findings["signature"].tolist()
    order = {
        name: (Signature.parse(name).rank, seconds, name)
        for name, seconds in zip(names, findings["first_seconds"], strict=True)
    }
    beside = {name: set(text.splitlines()) for name, text in zip(names, findings["beside"], strict=True)}
    answered = {name for name, told in zip(names, findings["evidence"], strict=True) if ANSWERED in told}
    made_small = set(findings["signature"][findings["runs"] > TRIAL_RUNS])

    def is_nearer(one: str, other: str) -> bool:
        if order[one][0] != order[other][0]:
            return one not in answered and order[one] < order[other]
        is_mutual = other in beside[one]
        return order[one] < order[other] if is_mutual else {one, other} <= made_small

    causes = {
        name: min(
            (one for one in beside[name] if one in order and is_nearer(one, name)), key=order.__getitem__, default=""
        )
        for name in names
    }
    return pd.Series([_first(causes, name, order) for name in names], index=findings.index, dtype="string")


def _first(causes: Mapping[str, str], name: str, order: Mapping[str, tuple[int, float, str]]) -> str:
    """Back from cause to cause; of a ring the one that is nearest. "" where that is ``name`` itself."""
    path = [name]
    while (cause := causes[path[-1]]) and cause not in path:
        path.append(cause)
    first = min(path[path.index(cause or path[-1]) :], key=order.__getitem__)
    return "" if first == name else first
