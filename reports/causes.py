"""Which finding follows from which: where the smallest program that shows one shows another, nearer to the cause, too."""

from __future__ import annotations

import pandas as pd

from fuzz.finding import BREACH, Signature

# How near to the cause an oracle looks: a kernel that goes astray, one that was called wrong, an exception, what is left
# in memory, a wrong number.
_RANKS = {"bounds": 0, "contract": 2, "state": 3, "numeric": 4}
_BREACH_RANK, _LAST_RANK = 1, 5


def rank_of(signature: str) -> int:
    """How near to its cause a fault is seen, 0 being nearest."""
    parsed = Signature.parse(signature)
    return _BREACH_RANK if parsed.kind == BREACH else _RANKS.get(parsed.oracle, _LAST_RANK)


def follows_of(findings: pd.DataFrame) -> pd.Series[str]:
    """For each finding the signature of the one that it follows from, itself following from none; "" for most.

    A follows from B where A's saved program, which was made as small as it would go without any other fault than it had,
    still shows B, and B's oracle looks nearer to the cause. Of two by one oracle, each of which shows in the other's
    program, the one found later follows. Only a guess: two faults that one program cannot show apart look the same.
    """
    names = findings["signature"].tolist()
    order = {
        name: (rank_of(name), seconds, name) for name, seconds in zip(names, findings["first_seconds"], strict=True)
    }
    beside = {name: set(text.splitlines()) for name, text in zip(names, findings["beside"], strict=True)}

    def is_nearer(one: str, other: str) -> bool:
        return order[one] < order[other] and (order[one][0] < order[other][0] or other in beside[one])

    causes = {
        name: min(
            (one for one in beside[name] if one in order and is_nearer(one, name)), key=order.__getitem__, default=""
        )
        for name in names
    }
    # In rising order, so that the one that it follows from has been followed up already.
    for name in sorted(names, key=order.__getitem__):
        causes[name] = causes.get(causes[name], "") or causes[name]
    return pd.Series([causes[name] for name in names], index=findings.index, dtype="string")
