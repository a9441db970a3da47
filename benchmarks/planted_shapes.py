"""Planted faults for ``shrinking.py``: what a step, and the steps before it, have to be for a backend to go wrong.

Each is shown a world and the moments of a program, and answers whether it shows. None executes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from fuzz.ledger import Ledger
from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Program, Retract, Row, Verify
from fuzz.request import State, accept_max
from stubs.world import World


@dataclass(frozen=True, slots=True)
class Moment:
    """One op, with what each running request has in KV before it."""

    op: Op
    lengths: dict[int, int]


def moments(program: Program) -> list[Moment]:
    ledger, found = Ledger(program.world), []
    for op in program.ops:
        running = ledger.numbers(State.RUNNING)
        found.append(Moment(op, {number: ledger.requests[number].length for number in running}))
        ledger.apply(op)
    return found


Fault = Callable[[World, list[Moment]], bool]


def _rows(op: Op) -> tuple[Row, ...]:
    return op.rows if isinstance(op, (Extend, Mixed)) else ()


def _batch(op: Op) -> tuple[int, ...]:
    return op.requests if isinstance(op, (Decode, Verify)) else ()


def window_passed(world: World, run: list[Moment]) -> bool:
    """A request decodes behind a window that it has left."""
    window = world.sliding_window
    return window > 0 and any(one.lengths[n] > window for one in run for n in _batch(one.op))


def second_page_hit(world: World, run: list[Moment]) -> bool:
    """A prompt takes two pages of the cache."""
    return any(row.cached >= 2 * world.page_size for one in run for row in _rows(one.op))


def third_chunk(world: World, run: list[Moment]) -> bool:
    """A prompt comes in three chunks or more."""
    chunks: dict[int, int] = {}
    for row in (row for one in run for row in _rows(one.op)):
        chunks[row.request] = chunks.get(row.request, 0) + 1
        if chunks[row.request] >= 3 and not row.more:
            return True
        chunks[row.request] = chunks[row.request] if row.more else 0
    return False


def mixed_with_two(world: World, run: list[Moment]) -> bool:
    """A chunk of four tokens or more beside two requests that decode."""
    found = (one.op for one in run if isinstance(one.op, Mixed))
    return any(len(op.requests) >= 2 and any(row.tokens >= 4 for row in op.rows) for op in found)


def slot_taken_again(world: World, run: list[Moment]) -> bool:
    """A request that came after another had ended decodes beside one that was there before."""
    early: set[int] = set()
    late: set[int] = set()
    has_ended = False
    for one in run:
        has_ended |= isinstance(one.op, Finish) and not one.op.keep
        (late if has_ended else early).update(row.request for row in _rows(one.op))
        if set(_batch(one.op)) & late - early and set(_batch(one.op)) & early:
            return True
    return False


def back_in_a_batch_of_three(world: World, run: list[Moment]) -> bool:
    """A request that was retracted takes part in a batch of three."""
    lost: set[int] = set()
    for one in run:
        if len(_batch(one.op)) >= 3 and set(_batch(one.op)) & lost:
            return True
        lost |= set(one.op.requests) if isinstance(one.op, Retract) else set()
    return False


def all_accepted_twice(world: World, run: list[Moment]) -> bool:
    """A request's whole draft is accepted two times in a row."""
    before: set[int] = set()
    for op in (one.op for one in run if isinstance(one.op, Verify)):
        full = {n for n, accept in zip(op.requests, op.accepts, strict=True) if accept == accept_max(world)}
        if full & before:
            return True
        before = full
    return False


def tree_over_unequal(world: World, run: list[Moment]) -> bool:
    """A tree is verified for two requests whose lengths are eight tokens apart or more."""
    found = (one for one in run if isinstance(one.op, Verify) and world.spec_topk > 1)
    return any(
        max(one.lengths[n] for n in _batch(one.op)) - min(one.lengths[n] for n in _batch(one.op)) >= 8 for one in found
    )


def replay_padded(world: World, run: list[Moment]) -> bool:
    """A graph is replayed for three requests."""
    return bool(world.graph) and any(len(_batch(one.op)) == 3 for one in run)


def idle_before_a_step(world: World, run: list[Moment]) -> bool:
    """Two requests take a step right after an idle one, the first of them longer than 12 tokens."""
    for before, one in pairwise(run):
        batch = _batch(one.op)
        if isinstance(before.op, Idle) and len(batch) >= 2 and one.lengths[batch[0]] > 12:
            return True
    return False


FAULTS: tuple[Fault, ...] = (
    window_passed,
    second_page_hit,
    third_chunk,
    mixed_with_two,
    slot_taken_again,
    back_in_a_batch_of_three,
    all_accepted_twice,
    tree_over_unequal,
    replay_padded,
    idle_before_a_step,
)
