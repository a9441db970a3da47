"""Small cuts: take a request or a row out, swap or lengthen a row, join two chunks; nothing checks validity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzz.program import Decode, Extend, Finish, Mixed, Op, Program, Retract, Row, Verify


def rows_of(program: Program) -> Iterator[tuple[int, Row]]:
    """Each row with the index of its op."""
    for index, op in enumerate(program.ops):
        for row in getattr(op, "rows", ()):
            yield index, row


def numbers_in(op: Op) -> list[int]:
    """Requests that take part in ``op``, rows first."""
    return [*(row.request for row in getattr(op, "rows", ())), *getattr(op, "requests", ())]


def numbers_of(program: Program) -> list[int]:
    """All requests in order of first appearance."""
    return list(dict.fromkeys(number for op in program.ops for number in numbers_in(op)))


def with_op(program: Program, index: int, op: Op) -> Program:
    """``program`` with another op at ``index``."""
    return program.with_ops((*program.ops[:index], op, *program.ops[index + 1 :]))


def with_rows(op: Op, change: Callable[[Row], Row]) -> Op:
    """``op`` with each of its rows changed; an op without rows as it is."""
    if isinstance(op, (Extend, Mixed)):
        return replace(op, rows=tuple(change(row) for row in op.rows))
    return op


def swap_row(op: Op, old: Row, new: Row) -> Op:
    """``op`` with ``new`` where the object ``old`` was."""
    return with_rows(op, lambda row: new if row is old else row)


def with_row(program: Program, index: int, old: Row, new: Row) -> Program:
    """``program`` with ``new`` where the object ``old`` was in op ``index``."""
    return with_op(program, index, swap_row(program.ops[index], old, new))


def renumbered(op: Op, number: Callable[[int], int]) -> Op:
    """``op`` with each request, as a taker part and as whose KV is hit, called ``number`` of what it was."""

    def row(old: Row) -> Row:
        source = None if old.cached_from is None else number(old.cached_from)
        return replace(old, request=number(old.request), cached_from=source)

    op = with_rows(op, row)
    if isinstance(op, (Mixed, Decode, Verify, Finish, Retract)):
        return replace(op, requests=tuple(map(number, op.requests)))
    return op


def without_hit(row: Row, source: int, *, keep_length: bool) -> Row:
    """``row`` without a prefix cached from ``source``."""
    if row.cached_from != source:
        return row
    return replace(row, tokens=row.tokens + (row.cached if keep_length else 0), cached_from=None, cached=0)


def grow_last_row(ops: tuple[Op, ...], number: int, tokens: int) -> tuple[Op, ...]:
    """``ops`` with the last row of request ``number`` longer by ``tokens``."""
    for index in range(len(ops) - 1, -1, -1):
        row = next((row for row in getattr(ops[index], "rows", ()) if row.request == number), None)
        if row is not None:
            longer = swap_row(ops[index], row, replace(row, tokens=row.tokens + tokens))
            return (*ops[:index], longer, *ops[index + 1 :])
    return ops


def join_chunk(ops: tuple[Op, ...], index: int, row: Row) -> tuple[Op, ...]:
    """``ops`` with ``row``'s chunk and the next of the same request in one, where the first was."""
    for later in range(index + 1, len(ops)):
        following = next((other for other in getattr(ops[later], "rows", ()) if other.request == row.request), None)
        if following is None:
            continue
        joined = replace(row, tokens=row.tokens + following.tokens, more=following.more)
        first = swap_row(ops[index], row, joined)
        rest = without_row(ops[later], row.request)
        return (*ops[:index], first, *ops[index + 1 : later], *((rest,) if rest is not None else ()), *ops[later + 1 :])
    return ops


def without_request(ops: tuple[Op, ...], number: int, *, keep_length: bool) -> tuple[Op, ...]:
    """``ops`` without request ``number``; prompts that hit its KV compute that prefix, or are shorter by it."""
    left = [slimmer for op in ops if (slimmer := without(op, number)) is not None]
    return tuple(with_rows(op, lambda row: without_hit(row, number, keep_length=keep_length)) for op in left)


def without(op: Op, number: int) -> Op | None:
    """``op`` without request ``number``, or None if nothing is left."""
    slimmer = without_row(op, number)
    match slimmer:
        case Verify():
            left = tuple(n for n in slimmer.requests if n != number)
            return with_requests(slimmer, left) if left else None
        case Mixed() | Decode() | Finish() | Retract():
            numbers = tuple(n for n in slimmer.requests if n != number)
            if numbers:
                return replace(slimmer, requests=numbers)
            return Extend(slimmer.rows) if isinstance(slimmer, Mixed) else None
    return slimmer


def without_row(op: Op, number: int) -> Op | None:
    """``op`` without the row of request ``number``, or None if nothing is left; its decode part stays."""
    if not isinstance(op, (Extend, Mixed)):
        return op
    rows = tuple(row for row in op.rows if row.request != number)
    if rows:
        return replace(op, rows=rows)
    return Decode(op.requests) if isinstance(op, Mixed) else None


def with_requests(op: Verify, numbers: tuple[int, ...]) -> Verify:
    """``op`` of these requests, each with what it has of it; one that is new to it accepts a token, of one verified."""

    def of(values: tuple[int, ...]) -> tuple[int, ...]:
        had = dict(zip(op.requests, values, strict=True))
        return tuple(had.get(number, 1) for number in numbers)

    lens = of(op.verify_lens) if op.verify_lens else ()
    return replace(op, requests=numbers, accepts=of(op.accepts), verify_lens=lens)


def smaller(value: int, least: int) -> Iterator[int]:
    """Values below ``value``: the least, then ever nearer, to one less."""
    gap = value - least
    while gap > 0:
        yield value - gap
        gap //= 2
