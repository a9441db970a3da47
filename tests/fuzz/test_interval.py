"""Bounds of a rate, and what they cover."""

from __future__ import annotations

import math

import pytest

from fuzz.interval import clean_runs_needed, interval, lower_bound


@pytest.mark.parametrize(
    ("shown", "runs", "low", "high"),
    [
        (0, 3, 0.0, 0.7404),
        (3, 3, 0.2596, 1.0),
        (10, 10, 0.6673, 1.0),
    ],
)
def test_interval_of_all_or_nothing_is_a_root_of_the_tail(shown: int, runs: int, low: float, high: float) -> None:
    assert interval(shown, runs) == pytest.approx((low, high), abs=5e-5)


def test_no_runs_say_nothing() -> None:
    assert interval(0, 0) == (0.0, 1.0)


def test_one_sided_bound_of_a_fault_that_always_showed() -> None:
    assert lower_bound(3, 3) == pytest.approx(0.05 ** (1 / 3))


@pytest.mark.parametrize(("shown", "runs", "needed"), [(3, 3, 7), (6, 6, 4), (9, 9, 3), (6, 20, 20), (100, 100, 1)])
def test_rarer_faults_need_more_clean_runs(shown: int, runs: int, needed: int) -> None:
    assert clean_runs_needed(shown, runs) == needed


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("runs", [3, 20, 60])
def test_interval_covers_every_rate_in_95_of_100_samples(rate: float, runs: int) -> None:
    covered = 0.0
    for shown in range(runs + 1):
        low, high = interval(shown, runs)
        if low <= rate <= high:
            covered += math.comb(runs, shown) * rate**shown * (1 - rate) ** (runs - shown)
    assert covered >= 0.95
