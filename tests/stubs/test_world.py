"""World: what is derived, and how it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stubs.world import World

EAGLE = World(spec_algorithm="EAGLE", spec_steps=3, spec_topk=1, spec_draft_tokens=4)


def test_the_default_world_is_valid() -> None:
    World().check()


def test_json_round_trip() -> None:
    assert World.from_json(EAGLE.to_json()) == EAGLE


def test_later_fields_are_left_out_at_their_default() -> None:
    assert "save_kv_cache" not in World().to_json()
    assert list(World().to_json())[-1] == "spec_draft_tokens"
    assert World(save_kv_cache=0).to_json()["save_kv_cache"] == 0


def test_missing_fields_take_their_defaults() -> None:
    assert World.from_json({"page_size": 4}) == World(page_size=4)


def test_pair_is_spelled_as_on_the_command_line() -> None:
    assert World(prefill="triton", decode="fa3").pair == "triton:fa3"


def test_pool_pages() -> None:
    assert World(page_size=8, max_total_tokens=64).pool_pages == 8


@pytest.mark.parametrize(
    ("steps", "topk", "width", "page", "reserve"),
    [
        (3, 1, 4, 1, 4),  # max(3 * 1, 4)
        (3, 1, 4, 16, 4),  # a chain needs no pages of its own
        (4, 3, 6, 1, 12),  # max(4 * 3, 6)
        (2, 2, 4, 4, 16),  # (2 * 4 - 2 + 2) // 4 = 2 pages for each of 2 branches
        (4, 2, 4, 4, 16),  # (2 * 4 - 2 + 4) // 4 = 2 pages
        (1, 2, 3, 2, 4),  # (2 * 2 - 2 + 1) // 2 = 1 page for each of 2 branches
    ],
)
def test_spec_reserve(steps: int, topk: int, width: int, page: int, reserve: int) -> None:
    world = replace(EAGLE, spec_steps=steps, spec_topk=topk, spec_draft_tokens=width, page_size=page)
    assert world.spec_reserve == reserve


def test_no_reserve_without_speculation() -> None:
    assert World().spec_reserve == 0


def test_a_row_of_latent_kv_is_its_values_and_a_rotary_key() -> None:
    world = World(head_dim=288, kv_lora_rank=256)
    assert (world.v_dim, world.qk_rope_head_dim, world.layer_widths) == (256, 32, (576, 288, 256))
    assert World(head_dim=288).qk_rope_head_dim == 0


def test_graphs_are_captured_up_to_their_largest_batch() -> None:
    world = World(graph=2, graph_max=3, max_running_requests=4)
    world.check()
    assert world.graph_sizes == (2, 3)


@pytest.mark.parametrize(
    ("world", "sizes"),
    [
        (World(graph=1, max_running_requests=4), (2, 4)),
        (World(graph=1, max_running_requests=5), (2, 4, 6)),
        (World(graph=1, max_running_requests=1), (2,)),
        (World(graph=2, max_running_requests=5), (2, 4, 6)),
        (World(graph=3, max_running_requests=8), (6, 8)),
        (World(graph=1, graph_max=3, max_running_requests=8), (2, 4)),
        (World(max_running_requests=4), ()),
    ],
)
def test_two_batch_overlap_captures_even_batches_and_covers_the_largest(world: World, sizes: tuple[int, ...]) -> None:
    assert replace(world, wrapper="tbo").graph_sizes == sizes


def test_graphs_of_a_wrapper_that_splits_no_batch_are_captured_at_odd_sizes_too() -> None:
    assert World(graph=1, wrapper="linear", max_running_requests=3).graph_sizes == (1, 2, 3)


def test_layers_of_attention_are_numbered_among_all_layers() -> None:
    world = World(num_layers=2, linear_before=2, wrapper="linear")
    world.check()
    assert (world.total_layers, world.attention_ids, world.linear_ids) == (6, (2, 5), (0, 1, 3, 4))


def test_without_linear_layers_before_them_layers_of_attention_are_all_there_are() -> None:
    world = World(num_layers=3, wrapper="linear")
    assert (world.total_layers, world.attention_ids, world.linear_ids) == (3, (0, 1, 2), ())
    assert "linear_before" not in world.to_json()
