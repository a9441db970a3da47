"""The shrink passes: each lists simpler variants of a program, best first, with no thought of whether they are valid.

Whoever runs them mends each candidate, drops those that are not smaller, and starts a pass again after a success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from fuzz.edit import (
    grow_last_row,
    join_chunk,
    numbers_in,
    numbers_of,
    renumbered,
    rows_of,
    smaller,
    with_op,
    with_requests,
    with_row,
    with_rows,
    without,
    without_hit,
    without_request,
)
from fuzz.plain_world import plain_world
from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Program, Retract, Verify

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
    """Fewer tokens: one everywhere, then row by row one, a half, ... one less; encoders and cached prefixes too."""
    yield program.with_ops(tuple(with_rows(op, lambda row: replace(row, tokens=1)) for op in program.ops))
    for index, row in rows_of(program):
        for tokens in smaller(row.tokens, 1):
            yield with_row(program, index, row, replace(row, tokens=tokens))
        for fewer in smaller(row.encoder, 0):
            yield with_row(program, index, row, replace(row, tokens=row.tokens - row.encoder + fewer, encoder=fewer))
            yield with_row(program, index, row, replace(row, encoder=fewer))
        page = program.world.page_size
        for pages in smaller(row.cached // page, 1):
            yield with_row(program, index, row, replace(row, cached=pages * page))


def plain_steps(program: Program) -> Iterator[Program]:
    """Verifies that accept one token and extend no draft; requests that leave nothing in the cache; no padding."""
    for index, op in enumerate(program.ops):
        if isinstance(op, Verify):
            for plainer in _plain_verifies(op):
                yield with_op(program, index, plainer)
            for dead in smaller(op.dead, 0):
                yield with_op(program, index, replace(op, dead=dead))
        if isinstance(op, Finish):
            yield with_op(program, index, replace(op, keep=0))
        if isinstance(op, (Decode, Idle)):
            yield with_op(program, index, replace(op, dead=0, beside_extend=0))
            yield with_op(program, index, replace(op, beside_extend=0))
            for dead in smaller(op.dead, 0):
                yield with_op(program, index, replace(op, dead=dead))


def _plain_verifies(op: Verify) -> Iterator[Verify]:
    yield replace(op, accepts=(1,) * len(op.accepts))
    if op.draft_decode:
        yield replace(op, draft_decode=0)
    if op.verify_lens:
        yield replace(op, verify_lens=())
    yield replace(op, draft_extend=0)
    for at, accept in enumerate(op.accepts):
        for fewer in smaller(accept, 1):
            yield replace(op, accepts=(*op.accepts[:at], fewer, *op.accepts[at + 1 :]))
    for at, count in enumerate(op.verify_lens):
        for fewer in smaller(count, op.accepts[at]):
            yield replace(op, verify_lens=(*op.verify_lens[:at], fewer, *op.verify_lens[at + 1 :]))


def zero_seed(program: Program) -> Iterator[Program]:
    """Data seed 0, or a small one."""
    for seed in range(3):
        yield replace(program, seed=seed)


def renumber(program: Program) -> Iterator[Program]:
    """Requests numbered in order of first appearance."""
    names = {number: index for index, number in enumerate(numbers_of(program))}
    yield program.with_ops(tuple(renumbered(op, names.__getitem__) for op in program.ops))


def order_requests(program: Program) -> Iterator[Program]:
    """An op's requests in rising order; a verify's accepts stay in their places, or go with their requests."""
    for index, op in enumerate(program.ops):
        if not isinstance(op, (Mixed, Decode, Verify, Finish, Retract)) or list(op.requests) == sorted(op.requests):
            continue
        yield with_op(program, index, replace(op, requests=tuple(sorted(op.requests))))
        if isinstance(op, Verify):
            yield with_op(program, index, with_requests(op, tuple(sorted(op.requests))))


# Big cuts first, so that the small ones work on little; the world after the ops, for it re-runs them all.
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
