"""The shrink passes: each lists simpler variants of a program, best first, with no thought of whether they are valid.

Whoever runs them mends each candidate, drops those that are not smaller, and starts a pass again after a success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from fuzz.edit import (
    grow_last_row,
    join_chunk,
    numbers_in,
    numbers_of,
    rows_of,
    with_op,
    with_row,
    with_rows,
    without,
    without_hit,
    without_request,
)
from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Program, Retract, Verify
from stubs.world import World

Pass = Callable[[Program], Iterator[Program]]


def drop_trailing_ops(program: Program) -> Iterator[Program]:
    """The first half, three quarters, seven eighths ... of the ops."""
    cut = len(program.ops)
    while cut:
        yield program.with_ops(program.ops[: len(program.ops) - cut])
        cut //= 2


def drop_op_ranges(program: Program) -> Iterator[Program]:
    """Without a run of ops: long runs before short, late before early."""
    size = len(program.ops) // 2
    while size:
        for start in range(len(program.ops) - size, -1, -1):
            yield program.with_ops(program.ops[:start] + program.ops[start + size :])
        size //= 2


def drop_requests(program: Program) -> Iterator[Program]:
    """Without one request, wherever it occurs; prompts that hit its KV compute the prefix themselves or not at all."""
    for number in numbers_of(program):
        for keep_length in (True, False):
            yield program.with_ops(without_request(program.ops, number, keep_length=keep_length))


def drop_rows(program: Program) -> Iterator[Program]:
    """Without one request in one op."""
    for index, op in enumerate(program.ops):
        for number in numbers_in(op):
            slimmer = without(op, number)
            if slimmer is not None:
                yield with_op(program, index, slimmer)


def split_mixed(program: Program) -> Iterator[Program]:
    """A decode or an extend in place of a mixed batch."""
    for index, op in enumerate(program.ops):
        if isinstance(op, Mixed):
            yield with_op(program, index, Decode(op.requests))
            yield with_op(program, index, Extend(op.rows))


def join_chunks(program: Program) -> Iterator[Program]:
    """A prompt in one piece: its next chunk joined on, or left out."""
    for index, op in enumerate(program.ops):
        for row in getattr(op, "rows", ()):
            if row.more:
                yield program.with_ops(join_chunk(program.ops, index, row))
                yield with_row(program, index, row, replace(row, more=0))


def join_extends(program: Program) -> Iterator[Program]:
    """Two extends, one right after the other, in one batch."""
    for index, (op, following) in enumerate(pairwise(program.ops)):
        if isinstance(op, Extend) and isinstance(following, Extend):
            joined = Extend(op.rows + following.rows)
            yield program.with_ops((*program.ops[:index], joined, *program.ops[index + 2 :]))


def fold_steps(program: Program) -> Iterator[Program]:
    """No decode or verify, but prompts that are as much longer: for faults that hang on a length alone."""
    for index, op in enumerate(program.ops):
        if isinstance(op, (Decode, Verify)):
            accepts = op.accepts if isinstance(op, Verify) else (1,) * len(op.requests)
            grown = program.ops[:index]
            for number, accept in zip(op.requests, accepts, strict=True):
                grown = grow_last_row(grown, number, accept)
            yield program.with_ops(grown + program.ops[index + 1 :])


def drop_prefixes(program: Program) -> Iterator[Program]:
    """A prompt that hits no cache: as long as before, or without the prefix."""
    for index, row in rows_of(program):
        if row.cached_from is not None:
            for keep_length in (False, True):
                yield with_row(program, index, row, without_hit(row, row.cached_from, keep_length=keep_length))


def shorten(program: Program) -> Iterator[Program]:
    """Fewer tokens: one everywhere, then row by row one, a half, ... one less; cached prefixes too, by pages."""
    yield program.with_ops(tuple(with_rows(op, lambda row: replace(row, tokens=1)) for op in program.ops))
    for index, row in rows_of(program):
        for tokens in _smaller(row.tokens, 1):
            yield with_row(program, index, row, replace(row, tokens=tokens))
        page = program.world.page_size
        for pages in _smaller(row.cached // page, 1):
            yield with_row(program, index, row, replace(row, cached=pages * page))


def plain_steps(program: Program) -> Iterator[Program]:
    """Verifies that accept one token and extend no draft; finished requests that leave nothing in the cache; no padding."""
    for index, op in enumerate(program.ops):
        if isinstance(op, Verify):
            yield with_op(program, index, replace(op, accepts=(1,) * len(op.accepts)))
            if op.draft_decode:
                yield with_op(program, index, replace(op, draft_decode=0))
            yield with_op(program, index, replace(op, draft_extend=0))
            for at, accept in enumerate(op.accepts):
                for fewer in _smaller(accept, 1):
                    accepts = (*op.accepts[:at], fewer, *op.accepts[at + 1 :])
                    yield with_op(program, index, replace(op, accepts=accepts))
        if isinstance(op, Finish):
            yield with_op(program, index, replace(op, keep=0))
        if isinstance(op, (Decode, Idle)):
            yield with_op(program, index, replace(op, dead=0, beside_extend=0))
            yield with_op(program, index, replace(op, beside_extend=0))
            for dead in _smaller(op.dead, 0):
                yield with_op(program, index, replace(op, dead=dead))


def plain_world(program: Program) -> Iterator[Program]:
    """The plainest world; without speculation; then field by field the default, or a smaller value."""
    world = program.world
    plain = World(prefill=world.prefill, decode=world.decode, runner=world.runner, device=world.device)
    spec = {name: getattr(world, name) for name in _SPEC}
    no_spec = {name: getattr(plain, name) for name in _SPEC}
    for settings in (no_spec, spec):
        yield replace(program, world=replace(plain, **settings))
    yield replace(program, world=replace(world, **no_spec))
    for name in _PLAIN_ORDER:
        yield _with_setting(program, name, getattr(plain, name))
    for name in ("num_heads", "num_kv_heads", "head_dim", "num_layers", "page_size", "context_len"):
        # Powers of two only: odd sizes are no server's, and would not be simpler to read.
        for power in range(getattr(world, name).bit_length()):
            yield _with_setting(program, name, 1 << power)
    if world.is_speculative:
        yield from _smaller_spec(program)


def zero_seed(program: Program) -> Iterator[Program]:
    """Data seed 0, or a small one."""
    for seed in range(3):
        yield replace(program, seed=seed)


def renumber(program: Program) -> Iterator[Program]:
    """Requests numbered in order of first appearance."""
    names = {number: index for index, number in enumerate(numbers_of(program))}

    def rename(op: Op) -> Op:
        op = with_rows(
            op,
            lambda row: replace(
                row,
                request=names[row.request],
                cached_from=None if row.cached_from is None else names[row.cached_from],
            ),
        )
        if isinstance(op, (Mixed, Decode, Verify, Finish, Retract)):
            return replace(op, requests=tuple(names[number] for number in op.requests))
        return op

    yield program.with_ops(tuple(rename(op) for op in program.ops))


# Big cuts first, so that the small ones work on little; the world after the ops, for it re-runs them all.
def order_requests(program: Program) -> Iterator[Program]:
    """An op's requests in rising order; a verify's accepts stay in their places, or go with their requests."""
    for index, op in enumerate(program.ops):
        if not isinstance(op, (Mixed, Decode, Verify, Finish, Retract)) or list(op.requests) == sorted(op.requests):
            continue
        yield with_op(program, index, replace(op, requests=tuple(sorted(op.requests))))
        if isinstance(op, Verify):
            requests, accepts = zip(*sorted(zip(op.requests, op.accepts, strict=True)), strict=True)
            yield with_op(program, index, replace(op, requests=requests, accepts=accepts))


PASSES: tuple[Pass, ...] = (
    drop_trailing_ops,
    drop_op_ranges,
    drop_requests,
    drop_rows,
    split_mixed,
    join_chunks,
    join_extends,
    fold_steps,
    drop_prefixes,
    shorten,
    plain_steps,
    plain_world,
    zero_seed,
    renumber,
    order_requests,
)

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
    "wrapper",
)


def _with_setting(program: Program, name: str, value: Any) -> Program:
    """``program`` in a world with one field changed, and the fields that must go with it."""
    world = replace(program.world, **{name: value})
    if world.num_heads % world.num_kv_heads:
        world = replace(world, num_kv_heads=1)
    if not (world.sliding_window and world.alternate_layers and world.num_layers > 1):
        world = replace(world, window_tokens=0)
    if not world.graph or world.graph_max > world.max_running_requests:
        world = replace(world, graph_max=0)
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
    for steps in _smaller(world.spec_steps + 1, 2):
        yield replace(program, world=replace(world, spec_topk=1, spec_steps=steps - 1, spec_draft_tokens=steps))
    yield replace(program, world=replace(world, spec_topk=1, spec_draft_tokens=world.spec_steps + 1))
    if world.spec_topk > 1:
        for steps in range(1, world.spec_steps + 1):
            for topk in range(2, world.spec_topk + 1):
                width = min(world.spec_draft_tokens, 1 + topk + (steps - 1) * topk * topk)
                for fewer in [*_smaller(width, 2), width]:
                    smaller = replace(world, spec_steps=steps, spec_topk=topk, spec_draft_tokens=fewer)
                    yield replace(program, world=smaller)


def _smaller_modelless(program: Program) -> Iterator[Program]:
    """EAGLE's chain or tree in place of what other algorithms draft; then fewer drafted tokens, and a corpus less broad."""
    world = program.world
    width, least = world.spec_draft_tokens, 1
    chain = replace(world, spec_algorithm="EAGLE", spec_steps=width - 1, spec_topk=1)
    yield replace(program, world=chain)
    if world.spec_algorithm == "NGRAM":
        yield replace(program, world=replace(chain, spec_steps=max(1, width // 4), spec_topk=2))
        least = world.spec_topk
        for topk in range(1, world.spec_topk):
            yield replace(program, world=replace(world, spec_topk=topk, spec_steps=width // topk))
    for fewer in _smaller(width, max(2, least)):
        steps = fewer // world.spec_topk if world.spec_algorithm == "NGRAM" else 1
        yield replace(program, world=replace(world, spec_draft_tokens=fewer, spec_steps=steps))


def _smaller(value: int, least: int) -> Iterator[int]:
    """Values below ``value``: the least, then ever nearer, to one less."""
    gap = value - least
    while gap > 0:
        yield value - gap
        gap //= 2
