"""Drawn worlds: kinds of model that are drawn now and then, and where they are not."""

from __future__ import annotations

import pytest

from fuzz.generate import program_for
from fuzz.limits import Limits
from stubs.world import World

WORLDS = tuple(program_for(seed, Limits(pairs=("triton:fa3",))).world for seed in range(600))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("query_scalar", 64),
        ("query_scalar", 9),
        ("alternate_layers", 1),
        ("xai_temperature_len", 2),
        ("save_kv_cache", 0),
        ("deterministic", 1),
        ("logit_shift", -200),
        ("logit_shift", 200),
        ("head_dim", 24),
        ("context_len", 128),
    ],
)
def test_every_kind_is_drawn_and_is_not_the_rule(name: str, value: int) -> None:
    drawn = sum(getattr(world, name) == value for world in WORLDS)
    assert 4 <= drawn <= 200


def test_a_temperature_is_drawn_without_window_and_tree() -> None:
    heated = [world for world in WORLDS if world.xai_temperature_len]
    assert [world for world in heated if world.sliding_window or world.spec_topk > 1 or world.logit_shift] == []


def test_logits_are_shifted_in_float32_and_without_a_cap_alone() -> None:
    shifted = [world for world in WORLDS if world.logit_shift]
    assert {(world.dtype, world.logit_cap) for world in shifted} == {("float32", 0)}


def test_what_a_model_writes_itself_is_in_no_graph_and_in_one_pool() -> None:
    itself = [world for world in WORLDS if not world.save_kv_cache]
    assert [world for world in itself if world.graph or world.window_tokens] == []


def test_the_real_runner_has_a_llama_alone() -> None:
    limits = Limits(pairs=("triton:fa3",), runner="real")
    plain = World()
    names = ("query_scalar", "alternate_layers", "xai_temperature_len", "save_kv_cache", "deterministic", "logit_shift")
    for seed in range(100):
        world = program_for(seed, limits).world
        assert [name for name in names if getattr(world, name) != getattr(plain, name)] == []
