"""Kinds of model: each is drawn, in worlds that a server could be started with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuzz.generate import program_for
from fuzz.limits import Limits
from fuzz.program import Extend
from stubs.world import World

# A pair that serves window pools and sinks (see fuzz.served), and one of which no graphs are captured.
LIMITS = Limits(pairs=("triton:fa3", "triton:torch_native"))
WORLDS = [program_for(seed, LIMITS).world for seed in range(1500)]


@pytest.mark.parametrize(
    ("percent", "is_one"),
    [
        (5, lambda world: world.window_tokens > 0),
        (1, lambda world: world.window_tokens and not world.radix_cache and not world.is_speculative),
        (1, lambda world: world.window_tokens and world.spec_topk > 1),
        (5, lambda world: world.sinks),
        (1, lambda world: world.sinks and world.window_tokens),
        (5, lambda world: 0 < world.v_head_dim < world.head_dim),
        (5, lambda world: world.kv_dtype == "fp8_e4m3"),
        (1, lambda world: world.kv_dtype == "fp8_e5m2" and world.kv_scale),
        (1, lambda world: world.kv_lora_rank == 256),
        (1, lambda world: world.linear_before),
    ],
    ids=[
        "window pool",
        "no prefix cache",
        "window pool under a tree",
        "sinks",
        "both",
        "narrower values",
        "fp8",
        "scaled",
        "latent",
        "linear layers first",
    ],
)
def test_each_kind_is_drawn(percent: int, is_one: Callable[[World], bool]) -> None:
    assert sum(map(bool, map(is_one, WORLDS))) >= percent * len(WORLDS) / 100


CHUNKED = [
    world
    for pair in ("triton:fa3", "fa3:trtllm_mha")
    for world in (program_for(seed, Limits(pairs=(pair,))).world for seed in range(1200))
    if world.attention_chunk_size
]


@pytest.mark.parametrize(
    "is_one",
    [
        lambda world: world.attention_chunk_size < world.context_len,
        lambda world: world.attention_chunk_size >= world.context_len,
        lambda world: world.window_tokens,
        lambda world: world.graph,
        lambda world: world.is_tree,
        lambda world: world.is_speculative and not world.is_tree,
        lambda world: world.kv_dtype != "auto",
        lambda world: world.page_size > 1,
        lambda world: world.wrapper == "tbo",
    ],
    ids=["short", "longer than all", "pool", "graph", "tree", "chain", "fp8", "paged", "two-batch overlap"],
)
def test_chunks_are_drawn_with_what_goes_with_them(is_one: Callable[[World], bool]) -> None:
    assert sum(map(bool, map(is_one, CHUNKED))) >= 2


def test_chunks_are_drawn_for_backends_alone_that_are_not_refused() -> None:
    assert len(CHUNKED) >= 0.06 * 2400
    others = (program_for(seed, Limits(pairs=("triton:torch_native",))).world for seed in range(400))
    assert not any(world.attention_chunk_size for world in others)


ENCODERS = [
    program
    for pair in ("fa3:flashinfer", "torch_native:fa3")
    for program in (program_for(seed, Limits(pairs=(pair,))) for seed in range(1200))
    if program.world.encoder_decoder
]


def test_encoders_are_drawn_with_what_goes_with_them() -> None:
    worlds = [program.world for program in ENCODERS]
    assert len(worlds) >= 0.03 * 2400
    assert {world.num_layers for world in worlds} == {2, 3}
    for is_one in (lambda world: world.graph, lambda world: not world.radix_cache, lambda world: world.deterministic):
        assert sum(map(bool, map(is_one, worlds))) >= 2


def test_batches_have_encoders_of_their_own_of_others_and_none() -> None:
    rows = [row for program in ENCODERS for op in program.ops if isinstance(op, Extend) for row in op.rows]
    kinds = [("none" if not row.encoder else "known" if row.cached else "new") for row in rows]
    assert min(kinds.count(kind) for kind in ("none", "known", "new")) >= 0.05 * len(kinds)
    assert len({row.encoder for row in rows}) >= 10
    assert all(row.encoder < row.cached + row.tokens for row in rows)


def test_encoders_are_drawn_seldom_where_they_are_refused() -> None:
    assert 0 < sum(world.encoder_decoder for world in WORLDS) <= 0.03 * len(WORLDS)


def test_linear_layers_come_first_as_sglang_serves_such_models() -> None:
    first = [world for world in WORLDS if world.linear_before]
    assert {world.linear_before for world in first} == {1, 2, 3}
    assert {(world.page_size, world.overlap) for world in first if world.radix_cache} == {(1, 0)}
    assert {(world.v_head_dim, world.sinks) for world in first} == {(0, 0)}


def test_graphs_of_two_batch_overlap_are_drawn_past_the_requests_there_may_be() -> None:
    worlds = [program_for(seed, Limits(pairs=("triton:fa3",))).world for seed in range(2400)]
    rounded = [world for world in worlds if world.graph and world.graph_sizes[-1] > world.max_running_requests]
    assert len(rounded) >= 6
    assert {world.wrapper for world in rounded} == {"tbo"}


def test_the_window_pool_is_the_smaller_one_and_holds_a_request() -> None:
    for world in WORLDS:
        if world.window_tokens:
            assert world.context_len + 2 * world.spec_reserve <= world.window_tokens <= world.max_total_tokens


def test_a_window_over_a_tree_hides_no_key() -> None:
    trees = [world for world in WORLDS if world.window_tokens and world.sliding_window and world.spec_topk > 1]
    assert trees and all(world.sliding_window >= world.context_len for world in trees)


def test_the_real_runner_has_the_plain_kind_alone() -> None:
    worlds = [program_for(seed, Limits(runner="real")).world for seed in range(200)]
    assert not any(world.window_tokens or world.sinks for world in worlds)


def test_latent_attention_is_drawn_for_flashinfer() -> None:
    limits = Limits(pairs=("triton:flashinfer",), shapes=("plain",))
    assert any(program_for(seed, limits).world.kv_lora_rank for seed in range(200))


@pytest.mark.parametrize("pair", ["trtllm_mla:triton", "flashinfer:trtllm_mla"])
def test_latent_attention_is_always_drawn_for_a_backend_that_serves_nothing_else(pair: str) -> None:
    worlds = [program_for(seed, Limits(pairs=(pair,))).world for seed in range(60)]
    assert all(world.kv_lora_rank for world in worlds)
    assert {world.page_size for world in worlds} == {32, 64}


def test_prefixes_come_in_chunks_where_prompts_are_attended_to_without_absorption() -> None:
    worlds = [program_for(seed, Limits(pairs=("trtllm_mla:triton",))).world for seed in range(60)]
    assert {world.prefix_chunk for world in worlds} == {0, 16, 32, 64, 4096}
    worlds = [program_for(seed, Limits(pairs=("triton:trtllm_mla",))).world for seed in range(60)]
    assert {world.prefix_chunk for world in worlds} == {0}


def test_latent_attention_is_not_drawn_where_it_is_not_served() -> None:
    limits = Limits(pairs=("trtllm_mha:triton",), shapes=("plain",))
    assert not any(program_for(seed, limits).world.kv_lora_rank for seed in range(200))


def test_latent_attention_is_not_drawn_over_drafts() -> None:
    limits = Limits(shapes=("chain", "tree"))
    assert not any(program_for(seed, limits).world.kv_lora_rank for seed in range(200))


LATENT = [
    program_for(seed, Limits(pairs=(pair,))).world
    for pair in ("fa3:flashmla", "triton:trtllm_mla")
    for seed in range(400)
]
FP8 = [world for world in LATENT if world.kv_dtype != "auto"]


def test_latent_kv_is_drawn_in_fp8_of_models_in_bfloat16() -> None:
    assert 0.1 <= len(FP8) / len(LATENT) <= 0.25
    assert {world.dtype for world in FP8} == {"bfloat16"}
    assert {world.kv_scale for world in FP8} == {0, 4, 16}


def test_latent_kv_in_fp8_is_captured_without_scales_alone() -> None:
    assert any(world.graph for world in FP8)
    assert not any(world.graph for world in FP8 if world.kv_scale)


@pytest.mark.parametrize(("decode", "least", "most"), [("flashmla", 0.1, 0.4), ("trtllm_mla", 0.0, 0.1)])
def test_e5m2_is_drawn_seldom_where_its_server_is_refused(decode: str, least: float, most: float) -> None:
    worlds = [world for world in FP8 if world.decode == decode]
    assert least <= sum(world.kv_dtype == "fp8_e5m2" for world in worlds) / len(worlds) <= most
