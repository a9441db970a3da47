"""Options of a campaign as the command line spells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.order import CampaignError, CampaignOptions


def options(**fields: object) -> CampaignOptions:
    given: dict[str, object] = {"target": "pypi:1.2", "repros": Path("r"), "out": Path("o"), "python": "python"}
    return CampaignOptions(**{**given, **fields})  # type: ignore[arg-type]


def test_command_leaves_out_what_is_usual() -> None:
    assert options(seconds=5.0).command == "seamripper run --target pypi:1.2 --seed 0"


def test_command_names_what_is_not() -> None:
    made = options(target="path:/a b", seed=3, pairs=("a:b", "c:c"), runner="real", device="cuda", twins=True)
    assert made.command == (
        "seamripper run --target 'path:/a b' --seed 3 --pair a:b --pair c:c --runner real --device cuda --twins"
    )


OFFERED = {"b:c": "", "a:b": "", "a:a": "", "a:z": "z wants a GPU"}


def test_all_pairs_that_run_but_twins() -> None:
    assert options().choose(OFFERED) == ("a:b", "b:c")


def test_twins_when_asked() -> None:
    assert options(twins=True).choose(OFFERED) == ("a:a", "a:b", "b:c")


def test_pairs_asked_for_in_the_order_given() -> None:
    assert options(pairs=("b:c", "a:b")).choose(OFFERED) == ("b:c", "a:b")


def test_pair_that_does_not_run_says_why() -> None:
    with pytest.raises(CampaignError, match="pair 'a:z' cannot run on this target here: z wants a GPU"):
        options(pairs=("a:z",)).choose(OFFERED)


def test_pair_that_is_unknown_names_those_that_are() -> None:
    with pytest.raises(CampaignError, match="pair 'a:q' is unknown to this target; expected one of a:a, a:b, a:z, b:c"):
        options(pairs=("a:q",)).choose(OFFERED)
