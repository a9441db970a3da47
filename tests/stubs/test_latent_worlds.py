"""The plainest worlds that pairs of backends start with."""

from __future__ import annotations

import pytest

from stubs.latent_worlds import LATENT_ONLY, needs_latent, smallest_world, with_latent
from stubs.world import World


@pytest.mark.parametrize("name", LATENT_ONLY)
def test_a_backend_for_latent_attention_alone_is_tried_with_it(name: str) -> None:
    world = smallest_world(name, "triton", "cpu")
    world.check()
    assert (world.num_heads, world.num_kv_heads, world.head_dim, world.kv_lora_rank) == (4, 1, 288, 256)


def test_others_are_tried_without() -> None:
    assert smallest_world("flashinfer", "triton", "cpu") == World(prefill="flashinfer", decode="triton")


def test_pages_are_the_smallest_that_both_take() -> None:
    assert smallest_world("trtllm_mla", "flashmla", "cpu").page_size == 64


def test_either_half_may_need_it() -> None:
    pairs = [("flashmla", "triton"), ("triton", "flashmla"), ("triton", "fa3")]
    assert [needs_latent(World(prefill=one, decode=other)) for one, other in pairs] == [True, True, False]


def test_what_goes_with_no_latent_attention_is_left_out() -> None:
    world = with_latent(World(sliding_window=4, logit_cap=30, sinks=1, num_kv_heads=2, num_heads=2))
    world.check()
    assert (world.sliding_window, world.logit_cap, world.sinks) == (0, 0, 0)
