"""The shrink pass over a program's world: the plainest first, then field by field, each with what must go with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fuzz.edit import smaller
from fuzz.program import Program, plainest

_SPEC = ("spec_algorithm", "spec_mode", "spec_steps", "spec_topk", "spec_draft_tokens")
_PLAIN_ORDER = (
    "prefix_chunk",
    "kv_lora_rank",
    "page_size",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "dtype",
    "layout",
    "overlap",
    "sliding_window",
    "logit_cap",
    "context_len",
    "max_running_requests",
    "max_total_tokens",
    "spec_mode",
    "query_scalar",
    "alternate_layers",
    "xai_temperature_len",
    "save_kv_cache",
    "deterministic",
    "logit_shift",
    "window_tokens",
    "radix_cache",
    "sinks",
    "v_head_dim",
    "kv_scale",
    "kv_dtype",
    "graph_max",
    "graph",
    "prefill_graph",
    "linear_before",
    "wrapper",
    "attention_chunk_size",
    "encoder_decoder",
)


def plain_world(program: Program) -> Iterator[Program]:
    """The plainest world; without speculation; then field by field the default, or a smaller value."""
    world = program.world
    plain = plainest(world)
    spec = {name: getattr(world, name) for name in _SPEC}
    no_spec = {name: getattr(plain, name) for name in _SPEC}
    for settings in (no_spec, spec):
        yield replace(program, world=replace(plain, **settings))
    yield replace(program, world=replace(world, **no_spec))
    for name in _PLAIN_ORDER:
        yield _with_setting(program, name, getattr(plain, name))
    if world.linear_before > 1:
        yield _with_setting(program, "linear_before", 1)
    sizes = ("num_heads", "num_kv_heads", "head_dim", "num_layers", "page_size", "context_len", "attention_chunk_size")
    for name in sizes:
        # Powers of two only: odd sizes are no server's, and would not be simpler to read.
        for power in range(getattr(world, name).bit_length()):
            yield _with_setting(program, name, 1 << power)
    if world.is_speculative:
        yield from _smaller_spec(program)


def _with_setting(program: Program, name: str, value: Any) -> Program:
    """``program`` in a world with one field changed, and the fields that must go with it."""
    world = replace(program.world, **{name: value})
    if world.num_heads % world.num_kv_heads:
        world = replace(world, num_kv_heads=1)
    chunk, page = world.attention_chunk_size, world.page_size
    world = replace(world, attention_chunk_size=-(-chunk // page) * page)
    if not (world.local_span and world.alternate_layers and world.num_layers > 1):
        world = replace(world, window_tokens=0)
    if not world.graph or world.graph_max > world.max_running_requests:
        world = replace(world, graph_max=0)
    if world.wrapper != "linear":
        world = replace(world, linear_before=0)
    for pool in ("max_total_tokens", "window_tokens"):
        size = getattr(world, pool)
        world = replace(world, **{pool: size // world.page_size * world.page_size})
    return replace(program, world=world)


def _smaller_spec(program: Program) -> Iterator[Program]:
    """Chains in place of trees, fewer steps, fewer branches, fewer drafted tokens."""
    world = program.world
    if not world.has_draft_model:
        yield from _smaller_modelless(program)
        return
    for steps in smaller(world.spec_steps + 1, 2):
        yield replace(program, world=replace(world, spec_topk=1, spec_steps=steps - 1, spec_draft_tokens=steps))
    yield replace(program, world=replace(world, spec_topk=1, spec_draft_tokens=world.spec_steps + 1))
    if world.spec_topk > 1:
        for steps in range(1, world.spec_steps + 1):
            for topk in range(2, world.spec_topk + 1):
                width = min(world.spec_draft_tokens, 1 + topk + (steps - 1) * topk * topk)
                for fewer in [*smaller(width, 2), width]:
                    narrower = replace(world, spec_steps=steps, spec_topk=topk, spec_draft_tokens=fewer)
                    yield replace(program, world=narrower)


def _smaller_modelless(program: Program) -> Iterator[Program]:
    """EAGLE's chain or tree in place of what other algorithms draft; then fewer tokens, and a corpus less broad."""
    world = program.world
    width, least = world.spec_draft_tokens, 1
    chain = replace(world, spec_algorithm="EAGLE", spec_steps=width - 1, spec_topk=1)
    yield replace(program, world=chain)
    if world.spec_algorithm == "NGRAM":
        yield replace(program, world=replace(chain, spec_steps=max(1, width // 4), spec_topk=2))
        least = world.spec_topk
        for topk in range(1, world.spec_topk):
            yield replace(program, world=replace(world, spec_topk=topk, spec_steps=width // topk))
    if world.is_ragged:
        yield replace(program, world=replace(world, spec_algorithm="DFLASH"))
    for fewer in smaller(width, max(2, least)):
        steps = fewer // world.spec_topk if world.spec_algorithm == "NGRAM" else 1
        yield replace(program, world=replace(world, spec_draft_tokens=fewer, spec_steps=steps))
