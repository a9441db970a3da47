"""Layer: what follows from a world for each of a model's layers."""

from __future__ import annotations

from stubs.layer import Layer, layer_of
from stubs.world import World


def test_layers_are_alike_by_default() -> None:
    world = World(head_dim=16, sliding_window=4, logit_cap=30)
    assert layer_of(world, 0) == layer_of(world, 1) == Layer(0.25, 4, 30, 0)


def test_every_second_layer_is_plain_where_layers_alternate() -> None:
    world = World(sliding_window=4, logit_cap=30, alternate_layers=1, num_layers=2)
    assert [(layer_of(world, index).window, layer_of(world, index).logit_cap) for index in (0, 1, 2)] == [
        (4, 30),
        (0, 0),
        (4, 30),
    ]


def test_a_draft_has_the_windows_and_caps_of_its_target_and_no_temperature() -> None:
    world = World(head_dim=16, sliding_window=4, logit_cap=30, xai_temperature_len=9)
    assert layer_of(world, 0) == Layer(0.25, 4, 30, 9)
    assert layer_of(world, 0, on_draft=True) == Layer(0.25, 4, 30, 0)


def test_the_query_scalar_takes_the_place_of_the_head_dim() -> None:
    assert layer_of(World(head_dim=16, query_scalar=64), 0).scaling == 0.125
