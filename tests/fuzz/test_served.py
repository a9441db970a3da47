"""What some backends alone serve: agrees with what was measured, is drawn seldom elsewhere, and never not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzz.generate import program_for
from fuzz.limits import Limits
from fuzz.served import SERVED
from stubs.world import World

MEASURED = Path(__file__).resolve().parents[1] / "data" / "support.json"
ROWS = {"sinks": "attention sinks", "deterministic": "deterministic", "tree": "verify, tree"}


@pytest.mark.parametrize("feature", ROWS)
def test_it_is_what_every_release_was_seen_to_serve(feature: str) -> None:
    releases = json.loads(MEASURED.read_text())["releases"]
    served = {name for one in releases for name, rows in one["backends"].items() if rows[ROWS[feature]] != "no"}
    assert served == set(SERVED[feature])


def test_window_pools_are_of_the_model_that_has_sinks() -> None:
    assert SERVED["window_tokens"] == SERVED["sinks"]


def worlds(pair: str, count: int) -> list[World]:
    return [program_for(seed, Limits(pairs=(pair,))).world for seed in range(count)]


def share(found: list[World], field: str) -> float:
    return sum(bool(getattr(world, field)) for world in found) / len(found)


@pytest.mark.parametrize(
    ("pair", "field", "least", "most"),
    [
        ("triton:fa3", "window_tokens", 0.11, 0.19),
        ("triton:flashinfer", "window_tokens", 0.005, 0.03),
        ("triton:fa3", "sinks", 0.10, 0.18),
        ("triton:flashinfer", "sinks", 0.005, 0.04),
        ("triton:flashinfer", "deterministic", 0.09, 0.16),
        ("triton:torch_native", "deterministic", 0.005, 0.03),
    ],
)
def test_it_is_drawn_seldom_where_it_is_refused(pair: str, field: str, least: float, most: float) -> None:
    assert least <= share(worlds(pair, 1500), field) <= most


def test_a_half_that_verifies_no_tree_of_eagles_is_given_ngrams() -> None:
    found = [world for world in worlds("torch_native:trtllm_mha", 3000) if world.spec_algorithm]
    trees = [
        world for world in found if world.spec_mode == "decode" and (world.is_tree or world.spec_algorithm == "NGRAM")
    ]
    assert 0.05 <= sum(world.spec_algorithm == "EAGLE" for world in trees) / len(trees) <= 0.15
