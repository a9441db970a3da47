"""Every field of a world and a step is an axis that is declared, and is drawn or pinned as it is said to be."""

from __future__ import annotations

from dataclasses import fields

import pytest

from fuzz.axes import AXES
from fuzz.coverage import Drawn, coverage, summary, to_json
from fuzz.program import OPS, Row
from stubs.world import World

DRAWN = coverage(("triton:fa3", "flashinfer:triton"), 1500)


def test_every_field_of_a_program_is_declared_once() -> None:
    there = [(cls.__name__, field.name) for cls in (World, Row, *OPS) for field in fields(cls)]
    declared = [(axis.owner, axis.field) for axis in AXES]
    assert sorted(declared) == sorted(there), "fuzz/axes.py is behind stubs/world.py or fuzz/program.py"


@pytest.mark.parametrize("one", DRAWN, ids=lambda one: f"{one.axis.owner}.{one.axis.field}")
def test_an_axis_varies_if_it_is_said_to(one: Drawn) -> None:
    assert one.varies or not one.axis.drawn


def test_what_is_not_drawn_says_why() -> None:
    assert all(axis.pins for axis in AXES if not axis.drawn)


def test_in_json_and_in_a_line() -> None:
    (runner,) = (one for one in DRAWN if one.axis.field == "runner")
    assert to_json([runner]) == [
        {
            "axis": "World.runner",
            "drawn": False,
            "pins": ["the campaign's to choose, by --pair, --runner and --device"],
            "values": {"fake": 1500},
        }
    ]
    assert summary(runner) == "fake (1500)"
