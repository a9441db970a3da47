"""Draws what kind of model a world serves, beside the plain one: how its layers' KV is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fuzz.choice import Choices
from fuzz.served import draws
from stubs.latent_worlds import (
    LARGE_LATENT,
    LARGE_ROW,
    LATENT,
    LATENT_ONLY,
    ROW,
    UNABSORBED,
    needs_latent,
    with_latent,
)
from stubs.page_sizes import smallest_page
from stubs.world import World
from stubs.world_rules import NOT_CHUNKED, NOT_ENCODED

V_HEAD_DIMS = (8, 16, 24)  # models whose dims differ (MiMo: 192 and 128) have the narrower values

# Those whose own code serves latent attention here, over no kernels or over stand-ins that know it.
LATENT_BACKENDS = {"triton", "torch_native", "flex_attention", "fa3", "flashinfer", *LATENT_ONLY}
# Those that SGLang's check of Llama 4's arguments names, of those that run here: others are refused.
CHUNKED_BACKENDS = {"fa3", "triton", "trtllm_mha"}
NO_OTHER_KIND: Mapping[str, Any] = dict.fromkeys(NOT_CHUNKED, 0)
NO_KIND_BESIDE_ENCODERS: Mapping[str, Any] = {name: getattr(World(), name) for name in NOT_ENCODED}
LATENTS = (*((LATENT, ROW),) * 3, (LARGE_LATENT, LARGE_ROW))


def draw_kind(choices: Choices, world: World) -> World:
    """``world``, whose pool is drawn already, with another kind of model now and then."""
    if world.runner == "real":
        # Pinned: the tiny Llama of the real runner is of the plain kind.
        return world
    if needs_latent(world) or (_may_be_latent(world) and choices.chance(1, 12)):
        return _with_latent(choices, world)
    if _may_be_chunked(world) and choices.chance(1, 10):
        return _with_chunks(choices, world)
    if _may_have_encoders(world) and draws(choices, world, "encoder_decoder", 10):
        return _with_encoders(choices, world)
    if draws(choices, world, "window_tokens", 3):
        world = _with_window_pool(choices, world)
    # The one model with sinks, gpt-oss, has every second layer's window, too, and neither a cap nor a temperature.
    has_sinks = choices.chance(1, 3) if world.window_tokens else draws(choices, world, "sinks", 10)
    if has_sinks and not world.xai_temperature_len:
        world = replace(world, sinks=1, logit_cap=0)
    # Pinned for trtllm_mha: its store of fp8 is a kernel that SGLang compiles with nvcc when it is first called.
    if choices.chance(1, 10) and not (world.device == "cpu" and "trtllm_mha" in (world.prefill, world.decode)):
        world = _with_fp8(choices, world)
    narrower = [dim for dim in V_HEAD_DIMS if dim < world.head_dim]
    if choices.chance(1, 12) and narrower:
        world = replace(world, v_head_dim=choices.pick(narrower))
    if not world.window_tokens and choices.chance(1, 6):
        is_split = _may_overlap(world) and choices.chance(2, 3)
        return (_with_overlap if is_split else _with_linear_layers)(choices, world)
    return world


def _may_overlap(world: World) -> bool:
    """Pinned off elsewhere: see fuzz.axes."""
    return bool(world.save_kv_cache) and world.spec_algorithm in ("",) + ("EAGLE",) * (not world.graph)


def _with_overlap(choices: Choices, world: World) -> World:
    """Two-batch overlap. Its graphs are of even batches: of an odd number of requests the largest is rounded up past them."""
    world = replace(world, wrapper="tbo")
    return replace(world, max_running_requests=3, graph_max=0) if choices.chance(1, 2) else world


def _with_linear_layers(choices: Choices, world: World) -> World:
    """A model with linear layers, as Granite 4 and Nemotron-H are: some of them, mostly, before each layer of attention.

    Then the prefix cache is either off or as SGLang serves such a model by default: on pages of one token, without overlap.
    """
    # Pinned: SGLang's pool for such models has one head dim, and no model has sinks beside linear layers.
    world = replace(world, wrapper="linear", v_head_dim=0)
    if world.sinks or choices.chance(1, 3):
        return world
    cached = world.page_size == 1 and choices.chance(1, 2)
    return replace(
        world,
        linear_before=choices.pick((1, 1, 2, 3)),
        overlap=0 if cached else world.overlap,
        radix_cache=1 if cached else 0,
    )


def _with_fp8(choices: Choices, world: World) -> World:
    """KV in fp8, of a model in bfloat16, as served. Scales are powers of two: to divide by one and round is exact."""
    return replace(
        world,
        dtype="bfloat16",
        kv_dtype=choices.pick(("fp8_e4m3", "fp8_e4m3", "fp8_e4m3", "fp8_e5m2")),
        kv_scale=choices.pick((0, 4, 16)),
        logit_shift=0,
        # Pinned: what scales K and V in place was not looked at under a graph yet.
        graph=0,
        graph_max=0,
        # Pinned: the model's own write of K and V is tried with plain KV.
        save_kv_cache=1,
    )


def _with_window_pool(choices: Choices, world: World) -> World:
    """A hybrid model, as gpt-oss is: every second layer has a window, and their KV a pool of its own, a smaller one."""
    page = world.page_size
    window = choices.pick([size for size in (3, page, page - 1, page + 1, 2, 8) if size > 0])
    # SGLang defines no window over a tree, see fuzz.worlds: here it is pinned to one that hides no key.
    window = 2 * world.context_len if world.is_tree else window
    return _pooled(choices, replace(world, sliding_window=window, xai_temperature_len=0))


def _pooled(choices: Choices, world: World) -> World:
    """``world`` with a pool for those of its layers that have a window or chunks, every second one."""
    page = world.page_size
    request = -(-(world.context_len + 2 * world.spec_reserve) // page) * page
    return replace(
        world,
        num_layers=max(2, world.num_layers),
        alternate_layers=1,
        window_tokens=max(request, world.max_total_tokens // 2 // page * page),
        radix_cache=0 if choices.chance(1, 2) else 1,
        graph=0,  # see fuzz.worlds
        graph_max=0,
        # Pinned: the model's own write of K and V is tried on one pool.
        save_kv_cache=1,
    )


def _may_be_chunked(world: World) -> bool:
    """Pinned off elsewhere: see fuzz.axes."""
    return {world.prefill, world.decode} <= CHUNKED_BACKENDS


def _with_chunks(choices: Choices, world: World) -> World:
    """A model with local attention, as Llama 4 is. Its chunked layers have a pool of their own, as served, or none."""
    page = world.page_size
    # About a page or two, so that a short program comes to the end of a chunk; the last is longer than any request.
    chunk = choices.pick((page, 2 * page, 3 * page, -(-8 // page) * page, -(-world.context_len // page) * page))
    alternate = 1 if world.num_layers > 1 and choices.chance(1, 2) else 0
    world = replace(world, attention_chunk_size=chunk, **NO_OTHER_KIND, alternate_layers=alternate)
    if choices.chance(1, 8) and not (world.device == "cpu" and "trtllm_mha" in (world.prefill, world.decode)):
        return _with_fp8(choices, world)
    if choices.chance(1, 3):
        return _pooled(choices, world)
    return _with_overlap(choices, world) if _may_overlap(world) and choices.chance(1, 8) else world


def _may_have_encoders(world: World) -> bool:
    """Pinned off elsewhere: see fuzz.axes."""
    return not world.is_speculative and smallest_page(world.prefill, world.decode) == 1


def _with_encoders(choices: Choices, world: World) -> World:
    """A model with an encoder and cross attention, as Mllama is. Pinned: see fuzz.axes."""
    world = replace(world, **NO_KIND_BESIDE_ENCODERS)
    return replace(
        world,
        encoder_decoder=1,
        num_layers=choices.pick((2, 2, 3)),
        page_size=1,
        save_kv_cache=1,
        radix_cache=0 if choices.chance(1, 4) else 1,  # SGLang has none for Whisper, which is such a model, too
    )


def _may_be_latent(world: World) -> bool:
    """Pinned off over drafts and on a GPU: see fuzz.axes."""
    served = {world.prefill, world.decode} <= LATENT_BACKENDS
    return served and not world.is_speculative and world.device == "cpu"


def _with_latent(choices: Choices, world: World) -> World:
    """A model with latent attention, as DeepSeek's are: every head reads the same row. Pinned: see fuzz.axes."""
    world = with_latent(world, *choices.pick(LATENTS), choices.pick((4, 2, 8)))
    if world.prefill in UNABSORBED and choices.chance(1, 2):
        # A chunk is shared out among the requests: some tokens each, about a page, or all at once.
        world = replace(world, prefix_chunk=choices.pick((16, max(16, world.page_size), 4096)))
    return _with_latent_fp8(choices, world) if choices.chance(1, 6) else world


def _with_latent_fp8(choices: Choices, world: World) -> World:
    """Latent KV in fp8, as served: of a model in bfloat16, mostly without scales, and then in graphs too."""
    is_e5m2, scale = draws(choices, world, "latent_e5m2", 4), choices.pick((0, 0, 0, 4, 16))
    world = replace(world, dtype="bfloat16", kv_dtype="fp8_e5m2" if is_e5m2 else "fp8_e4m3", kv_scale=scale)
    return replace(world, graph=0, graph_max=0) if scale else world  # see _with_fp8
