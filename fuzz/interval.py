"""What k of n runs say of how often a fault shows: exact binomial bounds, and how many clean runs exclude it.

The bounds are Clopper and Pearson's (Biometrika 26, 1934): they hold for every true rate, at the price of being wide.
"""

from __future__ import annotations

import math
from functools import lru_cache

CONFIDENCE = 0.95
# Of intervals. More than is promised: how many runs there are depends on what the first of them show, and with 95 % it
# would be 94 % of the samples, at worst, whose interval holds the true rate. With this it is 96 %.
NOMINAL = 0.965
_HALVINGS = 50  # of an interval of length 1: far below what is printed


def interval(shown: int, runs: int) -> tuple[float, float]:
    """The two-sided 95 % interval of the rate of which ``shown`` of ``runs`` runs are a sample; (0, 1) of no runs."""
    tail = (1 - NOMINAL) / 2
    return _low(shown, runs, tail), 1 - _low(runs - shown, runs, tail)


def lower_bound(shown: int, runs: int) -> float:
    """The one-sided 95 % bound: a rate below it gives ``shown`` or more of ``runs`` in less than 5 % of cases."""
    return _low(shown, runs, 1 - CONFIDENCE)


def clean_runs_needed(shown: int, runs: int) -> int:
    """How many runs without the fault exclude, at 95 %, that it is there and shows as rarely as that sample allows.

    ``shown`` is at least 1.
    """
    rate = lower_bound(shown, runs)
    return math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-rate))


@lru_cache(maxsize=4096)  # the same few counts are asked about again and again
def _low(shown: int, runs: int, tail: float) -> float:
    """The rate at which ``shown`` or more of ``runs`` has the probability ``tail``."""
    assert 0 <= shown <= runs
    if shown == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        if _at_least(shown, runs, rate) < tail:
            low = rate
        else:
            high = rate
    return low


def _at_least(shown: int, runs: int, rate: float) -> float:
    return sum(math.comb(runs, k) * rate**k * (1 - rate) ** (runs - k) for k in range(shown, runs + 1))
