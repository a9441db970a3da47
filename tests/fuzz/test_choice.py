"""Choices: what a seed, bytes and exhaustive search answer."""

from __future__ import annotations

from collections import Counter

import pytest

from fuzz.choice import Bytes, Choices, Exhaustive, Seeded, exhaustive


def test_a_seed_repeats_itself() -> None:
    choices = Seeded(7)
    assert [choices.integer(0, 99) for _ in range(6)] == [32, 15, 65, 7, 53, 36]


def test_seeds_differ() -> None:
    assert [Seeded(seed).integer(0, 10**6) for seed in range(3)] == [844422, 134364, 956035]


def test_a_seed_reaches_both_ends_of_a_range() -> None:
    choices = Seeded(0)
    assert {choices.integer(3, 5) for _ in range(100)} == {3, 4, 5}


def test_chance_is_as_likely_as_it_says() -> None:
    choices = Seeded(1)
    assert 2350 < sum(choices.chance(1, 4) for _ in range(10_000)) < 2650


def test_weigh_is_in_proportion() -> None:
    choices = Seeded(2)
    counts = Counter(choices.weigh([(1, "a"), (3, "b")]) for _ in range(10_000))
    assert 2350 < counts["a"] < 2650


def test_bytes_are_used_as_far_as_a_range_needs() -> None:
    choices = Bytes(bytes([5, 1, 2, 9]))
    # One byte for 10 values, two (little end first) for 1000 values, none for a range of one.
    assert (choices.integer(0, 9), choices.integer(4, 4), choices.integer(0, 999), choices.integer(0, 9)) == (
        5,
        4,
        513,
        9,
    )


def test_bytes_wrap_into_the_range() -> None:
    assert Bytes(bytes([12])).integer(0, 9) == 2


@pytest.mark.parametrize("choices", [Bytes(b""), Exhaustive()], ids=["no bytes", "first path"])
def test_the_lowest_answers(choices: Choices) -> None:
    answers = (choices.integer(3, 9), choices.pick("ab"), choices.chance(7, 8), choices.weigh([(1, "x"), (9, "y")]))
    assert answers == (3, "a", False, "x")


def test_a_value_cut_short_by_the_end_is_the_lowest() -> None:
    assert Bytes(bytes([200])).integer(0, 999) == 0


def test_exhaustive_takes_every_path_once() -> None:
    def tree(choices: Choices) -> str:
        if choices.chance(1, 100):
            return "pair " + choices.pick("ab") + choices.pick("xyz")
        return f"number {choices.integer(1, 2)}"

    assert [tree(choices) for choices in exhaustive()] == [
        "number 1",
        "number 2",
        "pair ax",
        "pair ay",
        "pair az",
        "pair bx",
        "pair by",
        "pair bz",
    ]


def test_exhaustive_of_a_generator_without_choices_runs_once() -> None:
    assert sum(1 for _ in exhaustive()) == 1


def test_exhaustive_does_not_weigh() -> None:
    assert [choices.weigh([(1000, "a"), (1, "b")]) for choices in exhaustive()] == ["a", "b"]


@pytest.mark.parametrize("choices", [Seeded(0), Bytes(b""), Exhaustive()])
def test_an_empty_range_is_our_mistake(choices: Choices) -> None:
    with pytest.raises(AssertionError, match="empty range"):
        choices.integer(2, 1)
