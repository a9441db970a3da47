"""What people would drive the same target with instead: Hypothesis's state machines, and atheris on raw bytes.

Both never return: what they run decides when to end the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from fuzz.choice import Bytes
from fuzz.extent import lengths_of
from fuzz.generate import generate
from fuzz.ledger import Ledger
from fuzz.limits import Limits
from fuzz.mend import mend
from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Program, Retract, Row
from fuzz.request import State
from stubs.world import World

STEPS_MAX = 28  # of a machine: as long as a variation of ours may get
BYTES_MAX = 512  # a program takes a hundred or two; more is never read

Run = Callable[[Program], Any]


def drive_machine(world: World, start: Callable[[Program], Any], ended: Callable[[], None], number: int) -> None:
    """Hypothesis's stateful testing as its documentation has it: a rule an op, each step run when its rule is.

    ``start`` gives a run of a program without ops, with ``op(index, op)`` and ``close()``; ``ended`` is told of each end.
    Only the phase that generates: what shows is noted and never raised, so there is nothing to replay or to shrink.
    """
    lengths = st.sampled_from(lengths_of(world))

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.ops: tuple[Op, ...] = ()
            self.ledger = Ledger(world)
            self.run = start(Program(world, ()))

        def step(self, op: Op) -> None:
            """Run what of ``op`` can run now."""
            fitting = mend(world, (*self.ops, op))
            if len(fitting) > len(self.ops):
                self.run.op(len(self.ops), fitting[-1])
                self.ledger.apply(fitting[-1])
                self.ops = fitting

        def running(self) -> tuple[int, ...]:
            return tuple(self.ledger.numbers(State.RUNNING))

        def rows(self, tokens: list[int], hit: bool, more: bool) -> tuple[Row, ...]:
            waiting = [] if self.ledger.chunked is None else [self.ledger.chunked]
            waiting += self.ledger.numbers(State.RETRACTED)
            fresh = max(self.ledger.requests, default=-1) + 1
            numbers = [*waiting, *range(fresh, fresh + len(tokens))][: len(tokens)]
            source = next((number for number in self.ledger.requests if self.ledger.cacheable(number)), None)
            cached = {"cached_from": source, "cached": world.context_len} if hit and source is not None else {}
            rows = [Row(number, length, **cached) for number, length in zip(numbers, tokens, strict=True)]
            last = rows.pop()
            return (*rows, Row(last.request, last.tokens, last.cached_from, last.cached, int(more)))

        @rule(tokens=st.lists(lengths, min_size=1, max_size=3), hit=st.booleans(), more=st.booleans())
        @precondition(lambda self: self.ledger.rows_free or self.ledger.chunked is not None)
        def extend(self, tokens: list[int], hit: bool, more: bool) -> None:
            self.step(Extend(self.rows(tokens, hit, more)))

        @rule(tokens=st.lists(lengths, min_size=1, max_size=2), hit=st.booleans(), more=st.booleans())
        @precondition(lambda self: self.running() and (self.ledger.rows_free or self.ledger.chunked is not None))
        def mixed(self, tokens: list[int], hit: bool, more: bool) -> None:
            self.step(Mixed(self.rows(tokens, hit, more), self.running()))

        @rule()
        @precondition(lambda self: self.running())
        def decode(self) -> None:
            self.step(Decode(self.running()))

        @rule(data=st.data(), keep=st.booleans())
        @precondition(lambda self: self.running())
        def finish(self, data: st.DataObject, keep: bool) -> None:
            self.step(Finish((data.draw(st.sampled_from(self.running())),), keep=int(keep)))

        @rule(data=st.data())
        @precondition(lambda self: self.running())
        def retract(self, data: st.DataObject) -> None:
            self.step(Retract((data.draw(st.sampled_from(self.running())),)))

        @rule()
        def idle(self) -> None:
            self.step(Idle())

        def teardown(self) -> None:
            self.run.close()
            ended()

    options = settings(
        max_examples=1_000_000,
        stateful_step_count=STEPS_MAX,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(Machine), settings=options)


def drive_bytes(atheris: Any, limits: Limits, run: Run, number: int) -> None:
    """atheris as its documentation has it: a function of bytes, here those that our generator's choices are read from."""

    def test_one_input(data: bytes) -> None:
        run(generate(Bytes(data), limits))

    # Long inputs from the beginning: libFuzzer's own way, by lengths that grow slowly, is for quicker targets.
    options = [f"-seed={number + 1}", f"-max_len={BYTES_MAX}", "-len_control=0", "-verbosity=0"]
    atheris.Setup(["raw bytes", *options], test_one_input)
    atheris.Fuzz()
