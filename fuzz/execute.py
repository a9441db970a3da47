"""Executes a Program on the target in this process and returns its Trace; the target's failures are data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch

from fuzz import slot
from fuzz.capability import Trial
from fuzz.finding import CUDA_FAULT, Finding, Verdict
from fuzz.oracle import ORACLES, Fault, StepView
from fuzz.oracle.bounds import out_of_bounds
from fuzz.oracle.contract import Judgement, judge
from fuzz.oracle.corrupt import outcome_of
from fuzz.oracle.graph import host_reads
from fuzz.oracle.kernel_watch import KernelWatch
from fuzz.oracle.state import restore_kv, serving_leaf
from fuzz.oracle.view import inputs_of
from fuzz.program import Extend, Finish, Op, Program, Retract, Row, Verify
from fuzz.stepping import first_mode, next_mode, steps_of
from fuzz.trace import Step, Trace
from fuzz.unmask import Supply, past_masks, supply_for
from stubs import bfloat16_arithmetic, bfloat16_dot, fp8_rounding, interpreter, scalar_indexing, sglang, uninitialised
from stubs.batch import Scheduler
from stubs.fake_server import build_fake_server
from stubs.latent_worlds import LATENT_ONLY
from stubs.layer_inputs import draw_inputs
from stubs.plan import StepPlan
from stubs.real_server import build_real_server
from stubs.slots import kv_buffers
from stubs.tap import Tap
from stubs.world import World

Oracle = Callable[[StepView], list[Any]]


def prepare() -> str:
    """Import the target and make its backends constructible here; returns its version. Call once per process."""
    from stubs.sglang_imports import import_attention
    from stubs.sglang_platform import prepare_platform

    import_attention()
    prepare_platform()
    if not torch.cuda.is_available():
        bfloat16_dot.install()
        bfloat16_arithmetic.install()
        fp8_rounding.install()
        scalar_indexing.install()
        interpreter.install()
        uninitialised.install()
    return sglang.version()


# Backends that run here with real SGLang code: unaided, or over a stand-in for the closed kernel below them.
CANDIDATES = ("triton", "torch_native", "fa3", "flex_attention", "flashinfer", "trtllm_mha", *LATENT_ONLY)


def available_pairs() -> dict[str, str]:
    """PREFILL:DECODE -> "" where a plain world starts with it, else SGLang's reason or the error. Twins included."""
    known = sglang.registry()
    return _trial().pairs([name for name in CANDIDATES if name in known])


def speculative_modes(pairs: Sequence[str]) -> dict[str, dict[str, int]]:
    """For each pair, the speculative attention modes that it verifies in, each with the most draft steps to draw."""
    trial = _trial()
    return {pair: trial.modes(pair) for pair in pairs}


def _trial() -> Trial:
    device = "cuda" if torch.cuda.is_available() else "cpu"  # a worker for the CPU is shown no GPU
    return Trial(device, _start_up_reason, _starts, _verifies)


def _starts(world: World) -> bool:
    return execute(Program(world, ()), ()).verdict is not Verdict.UNSUPPORTED


def _verifies(world: World) -> bool:
    program = Program(world, (Extend((Row(0, 2),)), Verify((0,), (1,))))
    return execute(program, ()).verdict is not Verdict.UNSUPPORTED


def _start_up_reason(world: World) -> str:
    run = _Run(Program(world, ()), ())
    run.start()
    run.close()
    return run.findings[0].title if run.findings else ""


def execute(program: Program, oracles: Sequence[Oracle] = ORACLES) -> Trace:
    """Run ``program`` step by step, judging each. Stops at the first exception; goes on after other faults.

    Behind a name that a wrapper forgot and its child has, it goes on as well, see ``fuzz.unmask``.
    """
    return past_masks(lambda: _once(program, oracles))


def _once(program: Program, oracles: Sequence[Oracle]) -> tuple[Trace, Supply | None]:
    began = time.perf_counter()
    run = _Run(program, oracles)
    try:
        run.start()
        for index, op in enumerate(program.ops):
            if not run.op(index, op):
                break
    finally:
        run.close()
    trace = Trace(tuple(run.steps), tuple(run.findings), time.perf_counter() - began, sglang.version())
    return trace, run.wanted


_SERVERS: dict[str, Callable[[World], Any]] = {"fake": build_fake_server, "real": build_real_server}


class _Run:
    """The state of one execution."""

    def __init__(self, program: Program, oracles: Sequence[Oracle]) -> None:
        self.program = program
        self.world: World = program.world
        self.oracles = oracles
        self.steps: list[Step] = []
        self.findings: list[Finding] = []
        self.server: Any = None
        self.scheduler: Scheduler | None = None
        self.leaf = ""  # the class that serves the step under way
        self.wanted: Supply | None = None  # what would have let it go on
        self.watch = KernelWatch()  # holds what kernels did since a step was judged

    def start(self) -> None:
        try:
            # Capturing graphs runs kernels. SGLang's own runner warms up others first, over pools not known yet.
            captures = (self.world.graph or self.world.prefill_graph) and self.world.runner == "fake"
            with self.watch.over(None) if captures else nullcontext():
                self.server = self.watch.server = _SERVERS[self.world.runner](self.world)
            self._add(host_reads(self.server.graphs.host_reads), 0, "start-up")
            self._judge_strays(0, "start-up")
            self.scheduler = Scheduler(self.server, self.program.seed)
        except Exception as error:  # noqa: BLE001 - the boundary: what the target raises is data
            self._judge_strays(0, "start-up")
            self._stop_at(judge(error, sglang.handed_in()), 0, "start-up", error)

    def close(self) -> None:
        broken = any(finding.signature.kind == CUDA_FAULT for finding in self.findings)
        if self.server is not None and not broken:  # nothing can be given back to a broken context
            self.server.close()

    def op(self, index: int, op: Op) -> bool:
        """Run one op; False ends the program (an exception left the server in no defined state)."""
        if self.scheduler is None:
            return False
        slot.begin_op(index)
        mode = first_mode(self.world, op)
        began = time.perf_counter()
        plan: StepPlan | None = None
        try:
            steps = steps_of(self.scheduler, op)
            while (plan := self._planned(steps)) is not None:
                mode = plan.mode
                faults = self._step(index, plan)
                seconds = time.perf_counter() - began
                self.steps.append(Step(index, mode, Verdict.BUG if faults else Verdict.OK, seconds, plan.batch))
                began = time.perf_counter()
                mode = next_mode(self.world, op, mode, has_draft=self.server.draft is not None)
            self._judge_strays(index, mode)
        except Exception as error:  # noqa: BLE001 - the boundary
            judgement = judge(error, sglang.handed_in(), f"{self.leaf}.{mode}" if self.leaf else "")
            batch = plan.batch if plan is not None and plan.mode == mode else {}
            self.steps.append(Step(index, mode, judgement.verdict, time.perf_counter() - began, batch))
            self._judge_strays(index, mode)  # first: what went wrong in a kernel may be what was raised over later
            self._stop_at(judgement, index, mode, error)
            return False
        if isinstance(op, (Finish, Retract)):
            self.steps.append(
                Step(index, op.kind, Verdict.OK, time.perf_counter() - began, {"requests": list(op.requests)})
            )
        return True

    def _planned(self, steps: Iterator[StepPlan]) -> StepPlan | None:
        """The op's next step, or None. SGLang runs kernels to prepare it (locations, trees), which are watched, too."""
        with self.watch.over(None):
            return next(steps, None)

    def _judge_strays(self, index: int, mode: str) -> None:
        """What kernels did wrong that no step was judged for: after the last one, or before an exception."""
        self._add(out_of_bounds(self.watch.take(), mode), index, mode)

    def _add(self, faults: Sequence[Fault], index: int, mode: str) -> None:
        for fault in faults:
            finding = Finding(Verdict.BUG, fault.signature, fault.title, fault.message, index, mode, fault.evidence)
            if all(known.signature != finding.signature for known in self.findings):
                self.findings.append(finding)

    def _step(self, index: int, plan: StepPlan) -> int:
        """Run one forward and let every oracle judge it; returns the number of faults."""
        assert self.scheduler is not None
        number = len(self.steps)
        runner = plan.runner
        backend = runner.attn_backend if plan.draft is None else plan.draft.backend
        leaf = serving_leaf(backend, plan.forward_batch.forward_mode)
        self.leaf = type(leaf).__name__
        kv_before = [buffer.clone() for buffer in kv_buffers(runner.token_to_kv_pool)]
        inputs_before = inputs_of(plan)
        with self.watch.over(plan):
            taps = self.server.forward(plan, partial(draw_inputs, self.world, self.program.seed, number))
            self._synchronize()
        view = StepView(
            self.world,
            plan,
            taps,
            kv_before,
            inputs_before,
            inputs_of(plan),
            backend,
            leaf,
            self._rerun(plan, taps) if self._is_repeated(index, plan) else None,
            self.watch.take(),
        )
        faults = [fault for oracle in self.oracles for fault in oracle(view)]
        self._add(faults, index, plan.mode)
        if faults:
            restore_kv(view)
        elif self._is_corrupted(index, plan):
            self._corrupt(index, view)
        self.scheduler.commit(plan, taps)
        return len(faults)

    def _synchronize(self) -> None:
        """Wait for the GPU: what a kernel broke is then raised in the step that launched it, and in no later one."""
        if self.world.device == "cuda":
            torch.cuda.synchronize()

    def _is_repeated(self, index: int, plan: StepPlan) -> bool:
        """Whether the step is run on a fresh wrapper, too: a replay always, else the last op's and every second.

        The first step has no history. That of the last op is looked at whatever the seed: shrinking cuts what follows
        a fault, and changes seeds.
        """
        number = len(self.steps)
        is_last = index == len(self.program.ops) - 1
        return plan.graph is not None or (number > 0 and (is_last or (self.program.seed + number) % 2 == 0))

    def _rerun(self, plan: StepPlan, taps: Sequence[Tap]) -> Callable[[], tuple[Sequence[Tap], Any]] | None:
        """The same step on a fresh wrapper, fed what the first run's layers were fed."""
        if plan.graph is not None and plan.rows:
            return cache(lambda: self._eagerly(plan, taps))
        if plan.on_draft or plan.is_planned or not plan.rows:
            return None

        def rerun() -> tuple[Sequence[Tap], Any]:
            backend = self.server.rebuild_backend()
            with self.watch.over(plan):  # nothing wild is to be touched here either
                again = self.server.replay(plan, taps, backend)
            self.watch.take()  # the same once more
            return again, backend

        return rerun

    def _eagerly(self, plan: StepPlan, taps: Sequence[Tap]) -> tuple[Sequence[Tap], Any]:
        """A replayed step without its graph."""
        plain = replace(plan, graph=None)
        with self.watch.over(plain):
            again, backend = self.server.eagerly(plain, taps)
        self.watch.take()
        return again, backend

    def _is_corrupted(self, index: int, plan: StepPlan) -> bool:
        """Whether the step is run once more with its input corrupted: the last op's on the target, if told."""
        is_last = index == len(self.program.ops) - 1
        eager = not plan.on_draft and plan.graph is None and not plan.is_planned
        return bool(self.program.corruption and is_last and plan.rows and eager)

    def _corrupt(self, index: int, view: StepView) -> None:
        """The step with one thing wrong in its input, on a fresh wrapper; what becomes of it is a thing apart."""

        def run(plan: StepPlan, taps: Sequence[Tap]) -> Sequence[Tap]:
            with self.watch.over(view.plan, notes=False):  # the rows of the uncorrupted step
                again: Sequence[Tap] = self.server.replay(plan, taps, self.server.rebuild_backend())
            self._synchronize()
            return again

        outcome = outcome_of(view, self.program.corruption, run, self.watch.violations)
        self.watch.take()
        view.plan.batch["corruption"] = outcome.told
        self._add(outcome.faults(view), index, view.plan.mode)
        if outcome.gap is not None:
            self._stop_at(outcome.gap, index, view.plan.mode)

    def _stop_at(self, judgement: Judgement, index: int, mode: str, error: Exception | None = None) -> None:
        self.wanted = supply_for(error) if error is not None and judgement.verdict is Verdict.BUG else None
        values = (judgement.verdict, judgement.signature, judgement.title, judgement.message)
        self.findings.append(Finding(*values, index, mode, judgement.evidence))
