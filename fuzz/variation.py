"""Makes a program out of others by small changes to its ops and world: what a coverage-guided search tries next.

Knows no engine. The same choices and programs give the same program, which is valid as a generated one is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzz.choice import Choices
from fuzz.edit import numbers_of, renumbered, rows_of, with_op, with_requests, with_row
from fuzz.extent import lengths_of, tokens_of
from fuzz.generate import next_op
from fuzz.ledger import Ledger
from fuzz.limits import Limits
from fuzz.mend import mend
from fuzz.program import Decode, Extend, Finish, Mixed, Op, Program, Row, Verify
from fuzz.redraw import redrawn
from fuzz.request import accept_max
from fuzz.worlds import draw_world
from stubs.world import World

# Faults that take a long history are come to by adding to what is known; a program stays one of seconds all the same.
OPS_GROWTH, TOKENS_GROWTH = 2, 1.5  # times what a generated program may have
TRIES = 8  # a change may come to nothing, as a length does that is cut back to what it was
CHANGES = ((8, 1), (4, 2), (2, 3), (1, 5))  # (weight, how many changes at once)
SEED_MAX = (1 << 31) - 1

Change = Callable[["Varier", Program], Program]
Site = tuple[int, Row | Op, str]  # an op's place, the op or a row of it, and which of its fields


def vary(choices: Choices, program: Program, other: Program, limits: Limits) -> Program:
    """``program`` after one or a few changes, some of which take ops from ``other``.

    Its pair stays, and of the runner and the device nothing changes. Never ``program`` itself.
    """
    varier = Varier(choices, other, limits)
    for _ in range(TRIES):
        changed = program
        for _ in range(choices.weigh(CHANGES)):
            change = choices.weigh(VARIATIONS) if changed.ops else Varier.insert
            changed = fitted(change(varier, changed), limits)
        if changed.ops and changed.ops + (changed.world,) != program.ops + (program.world,):
            return changed
    # Other tensors: whatever the steps are, that is another program.
    return fitted(replace(program, seed=(program.seed + choices.integer(1, SEED_MAX)) % (SEED_MAX + 1)), limits)


def lengthen(choices: Choices, program: Program, limits: Limits) -> Program:
    """``program`` with an op or two more behind it; as it is where none fits any more."""
    varier = Varier(choices, program, limits)
    for _ in range(choices.weigh(((3, 1), (1, 2)))):
        program = fitted(varier.append(program), limits)
    return program


class Varier:
    """What changes draw on: choices, another program, and the limits of all of them."""

    def __init__(self, choices: Choices, other: Program, limits: Limits) -> None:
        self.choices, self.other, self.limits = choices, other, limits

    def append(self, program: Program) -> Program:
        """One op more behind all others."""
        return self._with_one_at(program, len(program.ops))

    def insert(self, program: Program) -> Program:
        """One op more, such as could come there."""
        return self._with_one_at(program, self.choices.integer(0, len(program.ops)))

    def _with_one_at(self, program: Program, at: int) -> Program:
        op = next_op(self.choices, program.world, program.ops[:at], self.limits)
        known, fresh = set(numbers_of(program.with_ops(program.ops[:at]))), _fresh(program)
        # A request that begins here is not to be taken for one that begins further on.
        op = renumbered(op, lambda number: number if number in known else number + fresh)
        return program.with_ops((*program.ops[:at], op, *program.ops[at:]))

    def repeat(self, program: Program) -> Program:
        """An op, or a few in a row, once more."""
        at = self._place(program)
        end = self.choices.integer(at, min(at + 3, len(program.ops) - 1)) + 1
        return program.with_ops(program.ops[:end] + program.ops[at:])

    def drop(self, program: Program) -> Program:
        at = self._place(program)
        return program.with_ops(program.ops[:at] + program.ops[at + 1 :])

    def swap(self, program: Program) -> Program:
        """Two ops in each other's place, neighbours in every second case."""
        ops = list(program.ops)
        one = self._place(program)
        other = min(one + 1, len(ops) - 1) if self.choices.chance(1, 2) else self._place(program)
        ops[one], ops[other] = ops[other], ops[one]
        return program.with_ops(tuple(ops))

    def splice(self, program: Program) -> Program:
        """Ours up to somewhere, then the other's from somewhere on, with our requests or with its own."""
        ours = self.choices.integer(1, len(program.ops))
        theirs = self.choices.integer(0, max(0, len(self.other.ops) - 1))
        offset = _fresh(program) if self.choices.chance(1, 2) else 0
        tail = tuple(renumbered(op, lambda number: number + offset) for op in self.other.ops[theirs:])
        return program.with_ops(program.ops[:ours] + tail)

    def stretch(self, program: Program) -> Program:
        """One length otherwise: of a row, a cached prefix, an encoder, of what is verified or accepted."""
        sites: list[Site] = [(index, row, "tokens") for index, row in rows_of(program)]
        sites += [(index, row, "cached") for index, row in rows_of(program) if row.cached_from is not None]
        if program.world.encoder_decoder:
            sites += [(index, row, "encoder") for index, row in rows_of(program)]
        sites += [(index, op, "accepts") for index, op in enumerate(program.ops) if isinstance(op, Verify)]
        if not sites:
            return program
        index, part, name = self.choices.pick(sites)
        if isinstance(part, Verify):
            return with_op(program, index, self._other_accepts(program.world, part))
        return _with_part(program, index, part, name, self._length(program, getattr(part, name)))

    def flip(self, program: Program) -> Program:
        """One yes or no of an op: more of a prompt to come, drafts, KV kept."""
        sites: list[Site] = [(index, row, "more") for index, row in rows_of(program)]
        for index, op in enumerate(program.ops):
            if isinstance(op, Verify):
                sites += [(index, op, "draft_extend"), (index, op, "draft_decode")]
            elif isinstance(op, Finish):
                sites.append((index, op, "keep"))
        if not sites:
            return program
        index, part, name = self.choices.pick(sites)
        return _with_part(program, index, part, name, 1 - getattr(part, name))

    def gather(self, program: Program) -> Program:
        """Every request in every step from somewhere on, as far as it can take part."""
        at, everyone = self._place(program), tuple(numbers_of(program))
        return program.with_ops(program.ops[:at] + tuple(_with_all(op, everyone) for op in program.ops[at:]))

    def change_world(self, program: Program) -> Program:
        """One thing about the world."""
        limits, pair = self.limits, program.world.pair
        if limits.worlds:
            return replace(program, world=self.choices.pick([w for w in limits.worlds if w.pair == pair]))

        def draw(choices: Choices) -> World:
            return draw_world(
                choices, pair, limits.runner, limits.device, limits.page_sizes, limits.speculative, limits.shapes
            )

        return replace(program, world=redrawn(self.choices, program.world, draw))

    def _place(self, program: Program) -> int:
        return self.choices.integer(0, len(program.ops) - 1)

    def _length(self, program: Program, length: int) -> int:
        """An interesting length, or one next to ``length``."""
        near = [max(1, length - 1), length + 1]
        return self.choices.pick([*near, *lengths_of(program.world)])

    def _other_accepts(self, world: World, op: Verify) -> Verify:
        most = accept_max(world)

        def other(values: tuple[int, ...]) -> tuple[int, ...]:
            at = self.choices.integer(0, len(values) - 1)
            return (*values[:at], self.choices.integer(1, most), *values[at + 1 :])

        if world.is_ragged and self.choices.chance(1, 2):
            return replace(op, verify_lens=other(op.verify_lens or (most,) * len(op.requests)))
        return replace(op, accepts=other(op.accepts))


# (weight, change). What adds to a program comes before what takes away: what is kept has shown something new.
VARIATIONS: tuple[tuple[int, Change], ...] = (
    (3, Varier.append),
    (3, Varier.insert),
    (2, Varier.repeat),
    (2, Varier.drop),
    (2, Varier.swap),
    (3, Varier.splice),
    (4, Varier.stretch),
    (2, Varier.flip),
    (1, Varier.gather),
    (4, Varier.change_world),
)


def fitted(program: Program, limits: Limits) -> Program:
    """``program`` as far as its world and ``limits`` let it run."""
    room = _Room(program.world, limits)
    ops = tuple(_in_kind(op, program.world) for op in program.ops)
    return program.with_ops(mend(program.world, ops, room.admit))


class _Room:
    """What is left of a program's ops and tokens while it is mended, and what no generated program has."""

    def __init__(self, world: World, limits: Limits) -> None:
        self._world, self._limits = world, limits
        self._ops = OPS_GROWTH * limits.ops_max
        self._tokens = int(TOKENS_GROWTH * limits.tokens_max)

    def admit(self, ledger: Ledger, op: Op) -> Op | None:
        if isinstance(op, Verify):
            op = self._within_rows(ledger, op)
        tokens = tokens_of(op, self._world)
        is_empty = not getattr(op, "requests", True)
        if is_empty or self._ops < 1 or tokens > self._tokens:
            return None
        self._ops, self._tokens = self._ops - 1, self._tokens - tokens
        return op

    def _within_rows(self, ledger: Ledger, op: Verify) -> Verify:
        """Of the requests those whose reserve fits into their row (see Limits); a draft of one step decodes nothing."""
        width = self._world.context_len + 4 + self._world.spec_draft_tokens
        fits = self._limits.row_overflow
        numbers = tuple(number for number in op.requests if fits or ledger.reserved(number) <= width)
        decodes = op.draft_decode if self._world.spec_steps > 1 else 0
        return replace(with_requests(op, numbers), draft_decode=decodes)


def _with_part(program: Program, index: int, part: Any, name: str, value: int) -> Program:
    """``part``, an op or a row of it, with another value of one field."""
    changed = replace(part, **{name: value})
    return with_row(program, index, part, changed) if isinstance(part, Row) else with_op(program, index, changed)


def _fresh(program: Program) -> int:
    return max(numbers_of(program), default=-1) + 1


def _in_kind(op: Op, world: World) -> Op:
    """A decode where drafts are verified is a verify of the fewest; the other way round it is the mender's affair.

    A mixed batch where none runs is an extend.
    """
    if isinstance(op, Mixed) and not world.may_mix:
        return Extend(op.rows)
    if world.is_speculative and isinstance(op, Decode):
        return Verify(op.requests, (1,) * len(op.requests))
    return op


def _with_all(op: Op, everyone: tuple[int, ...]) -> Op:
    match op:
        case Verify():
            return with_requests(op, everyone)
        case Decode():
            return replace(op, requests=everyone)
        case Mixed():
            begun = {row.request for row in op.rows}
            return replace(op, requests=tuple(number for number in everyone if number not in begun))
    return op
