"""What an op is to the scheduler: the steps it comes to, and the mode an exception before each is filed under."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Retract, Row, Verify
from stubs.batch import Scheduler
from stubs.padding import Padding
from stubs.plan import RowInput, StepPlan
from stubs.world import World


def steps_of(scheduler: Scheduler, op: Op) -> Iterator[StepPlan]:
    """The steps of ``op``, each made when it is asked for."""
    match op:
        case Extend():
            yield from scheduler.extend(_rows(op.rows))
        case Mixed():
            yield from scheduler.mixed(_rows(op.rows), op.requests)
        case Decode():
            yield from scheduler.decode(op.requests, _padding(op))
        case Verify():
            drafts = bool(op.draft_extend), bool(op.draft_decode)
            yield from scheduler.verify(op.requests, op.accepts, *drafts, op.verify_lens, Padding(op.dead))
        case Idle():
            yield from scheduler.idle(_padding(op))
        case Finish():
            scheduler.finish(op.requests, bool(op.keep))
        case Retract():
            scheduler.retract(op.requests)


def _padding(op: Decode | Idle) -> Padding:
    return Padding(op.dead, bool(op.beside_extend))


def _rows(rows: Sequence[Row]) -> list[RowInput]:
    return [RowInput(row.request, row.tokens, row.cached_from, row.cached, bool(row.more), row.encoder) for row in rows]


def first_mode(world: World, op: Op) -> str:
    """The mode to file an exception under that came before the op's first forward batch was made."""
    if isinstance(op, Verify):
        return f"verify_{world.spec_shape}_{world.spec_mode}"
    return op.kind


def next_mode(world: World, op: Op, mode: str, *, has_draft: bool) -> str:
    """The same for one that came after the step of ``mode`` and before the next forward batch was made."""
    if not has_draft:
        return mode
    if isinstance(op, Verify):
        return first_mode(world, op) if mode.startswith("draft_decode") else "draft_extend"
    return "draft_prefill" if isinstance(op, Extend) else mode
