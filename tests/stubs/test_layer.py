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


def test_every_second_layer_is_without_chunks_where_layers_alternate() -> None:
    world = World(attention_chunk_size=8, alternate_layers=1, num_layers=2)
    assert [layer_of(world, index).chunk for index in (0, 1)] == [8, 0]
    assert [layer_of(world, index).is_local for index in (0, 1)] == [True, False]


def test_those_with_a_pool_of_their_own_are_the_others() -> None:
    world = World(attention_chunk_size=8, alternate_layers=1, num_layers=2, window_tokens=64)
    assert [layer_of(world, index).chunk for index in (0, 1)] == [0, 8]


def test_every_second_layer_is_the_encoders() -> None:
    world = World(encoder_decoder=1, num_layers=3)
    assert [layer_of(world, index).is_cross for index in range(3)] == [False, True, False]


def test_a_draft_has_no_chunks() -> None:
    assert layer_of(World(attention_chunk_size=8), 0, on_draft=True).chunk == 0
