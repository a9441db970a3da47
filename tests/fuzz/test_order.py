"""Options of a campaign as the command line spells them."""

from __future__ import annotations

from pathlib import Path

from fuzz.order import CampaignOptions


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
