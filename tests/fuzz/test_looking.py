"""Looks into findings leave programs most of the time, and end when the campaign has to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuzz.agenda import Agenda
from fuzz.looking import Looking, last_seconds, shortest_of
from fuzz.order import CampaignOptions


def test_no_look_is_begun_before_a_third_of_the_time_is_enough_for_one() -> None:
    looking = Looking(since=100)

    assert looking.begin(129) is None
    assert looking.begin(130) == 10


def test_look_may_take_what_is_left_of_the_third_and_a_minute_at_most() -> None:
    assert Looking(0).begin(90) == 30
    assert Looking(0, seconds=20).begin(90) == 10
    assert Looking(0, seconds=21).begin(90) is None
    assert Looking(0).begin(3600) == 60


def test_the_third_is_of_all_workers_time() -> None:
    assert Looking(0, workers=2).begin(45) == 30


def test_two_thirds_of_the_second_half_are_for_looks() -> None:
    assert Looking(0, seconds=20, until=180).begin(90) == 10
    assert Looking(0, seconds=30, until=180).begin(104) is None
    assert Looking(0, seconds=30, until=180).begin(105) == 10
    assert Looking(0, seconds=30, until=180).begin(180) == 60


@pytest.mark.parametrize(("campaign", "seconds"), [(60, 10), (300, 10), (600, 20), (3600, 60), (None, 60)])
def test_looks_are_longer_in_a_longer_campaign(campaign: float | None, seconds: float) -> None:
    assert shortest_of(campaign) == seconds


def test_no_look_is_begun_that_would_be_too_short_for_the_campaign() -> None:
    assert Looking(0, shortest=20).begin(59) is None
    assert Looking(0, shortest=20).begin(60) == 20


def test_look_under_way_counts_for_as_long_as_it_may_take() -> None:
    looking = Looking(0)
    looking.begin(90)

    assert looking.begin(90) is None


def test_look_that_is_over_counts_for_what_it_took() -> None:
    looking = Looking(0)
    granted = looking.begin(90)
    assert granted is not None
    looking.end(granted, 4)

    assert looking.seconds == 4
    assert looking.begin(90) == 26


@pytest.mark.parametrize(
    ("left", "findings", "seconds"),
    [(float("inf"), 3, 60), (60, 1, 60), (60, 3, 20), (60, 40, 10), (50, 0, 50), (4, 2, 4), (-1, 2, 0)],
)
def test_last_looks_share_the_time_that_is_left(left: float, findings: int, seconds: float) -> None:
    assert last_seconds(left, findings) == seconds


def test_crash_is_looked_into_before_what_was_found_earlier(options: Callable[[], CampaignOptions]) -> None:
    found = [
        {"signature": name} for name in ("numeric/window_ignored/A", "contract/TypeError/B", "contract/TypeError/C")
    ]
    agenda = Agenda(options(), float("inf"), set(), found, [], [])

    taken = [agenda.take_unexamined() for _ in range(4)]

    assert [entry["signature"] if entry else None for entry in taken] == [
        "contract/TypeError/B",
        "contract/TypeError/C",
        "numeric/window_ignored/A",
        None,
    ]
