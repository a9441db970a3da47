"""Saved repros on one target, each in a process of its own, with what is known of it from earlier."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fuzz.comparison import Cell, Cost
from fuzz.finding import Finding
from fuzz.process import WorkerError, WorkerProcess
from fuzz.revisions.cache import Shelf, open_shelf
from fuzz.revisions.gap import Reading
from fuzz.revisions.rig import Rig, Saved, device_of, open_worker, silent
from fuzz.revisions.sample import Sample, own_bug, run_of


@dataclass(frozen=True, slots=True)
class Ask:
    """Run this one ``times`` times; more (``Sample.wanted``) unless ``clean_runs`` is None.

    ``before``: the runs that were made already and are not to be made again.
    """

    saved: Saved
    times: int
    clean_runs: int | None = None
    before: Sample = field(default_factory=Sample)

    @property
    def clean_runs_needed(self) -> int:
        """Source is read once: there is no chance in it."""
        return 0 if self.saved.repro.is_gap else self.clean_runs or 0

    def runs_missing(self, sample: Sample) -> int:
        if self.saved.repro.is_gap:
            return 1 - sample.n
        wanted = self.times if self.clean_runs is None else sample.wanted(self.times, self.clean_runs)
        return wanted - sample.n


@dataclass(frozen=True, slots=True)
class Answer:
    """``cached`` of the runs were made earlier. ``finding`` is the fault as it showed this time.

    ``trouble`` says why it could not be run (again); the sample then counts for nothing.
    """

    ask: Ask
    sample: Sample = field(default_factory=Sample)
    cached: int = 0
    finding: Finding | None = None
    sglang_version: str = ""
    trouble: str = ""

    def cell(self, target: str) -> Cell:
        path, sample, clean_runs = str(self.ask.saved.path), self.sample, self.ask.clean_runs_needed
        if self.trouble:
            return Cell(path, target, "infra", 0, 0, self.trouble)
        state, detail = sample.state, sample.detail
        if state == "clean" and sample.n < clean_runs:
            state = "unsure"
            detail = f"{sample.n} clean runs do not exclude a bug that shows so rarely; {clean_runs} would"
        return Cell(path, target, state, sample.k, sample.n, detail, self.sglang_version, self.cached)


@dataclass(frozen=True, slots=True)
class Column:
    """The answers in the order of the asks."""

    target: str
    answers: tuple[Answer, ...]
    cost: Cost

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(answer.cell(self.target) for answer in self.answers)


@dataclass(slots=True)
class _Clock:
    """What the import and the runs cost so far."""

    import_seconds: float = 0.0
    run_seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def lap(self) -> float:
        now = time.monotonic()
        passed, self.began = now - self.began, now
        return passed


def run_column(
    target: str,
    asks: Sequence[Ask],
    rig: Rig,
    stop: threading.Event | None = None,
    number: int = 0,
    tell: Callable[[str], None] = silent,
) -> Column:
    """Ask ``target`` all of it; no worker is started where the cache has every answer. Raises TargetError.

    A worker that cannot start is an answer (infra), for the asks that it leaves open.
    """
    device = device_of([ask.saved for ask in asks])
    shelf = open_shelf(target, device, rig, tell)
    answers = [_recalled(ask, shelf) for ask in asks]
    clock, reading = _Clock(), Reading(target, rig.python)
    for index in _open(answers):
        if asks[index].saved.repro.is_gap:
            sample = reading.look(asks[index].saved.repro)
            answers[index] = replace(answers[index], sample=sample, sglang_version=reading.sglang_version)
            _keep(answers[index], shelf)
    left = _open(answers)
    if left:
        try:
            with open_worker(target, device, rig, stop or threading.Event(), number) as (worker, ready):
                clock.import_seconds = clock.lap()
                while left:
                    answers[left[0]] = _run(worker, answers[left[0]], rig.program_seconds, ready.sglang_version)
                    _keep(answers[left.pop(0)], shelf)
        except WorkerError as error:
            for index in left:
                answers[index] = Answer(asks[index], trouble=str(error))
        clock.run_seconds = clock.lap()
    cached = sum(answer.cached for answer in answers)
    runs = sum(answer.sample.n for answer in answers) - cached - sum(ask.before.n for ask in asks)
    return Column(target, tuple(answers), Cost(target, clock.import_seconds, clock.run_seconds, runs, cached))


def _open(answers: Sequence[Answer]) -> list[int]:
    """Which of them lack runs."""
    return [index for index, answer in enumerate(answers) if answer.ask.runs_missing(answer.sample) > 0]


def _recalled(ask: Ask, shelf: Shelf | None) -> Answer:
    kept = shelf.get(ask.saved.repro) if shelf else None
    if kept is None or kept.sample.n <= ask.before.n:
        return Answer(ask, ask.before)
    return Answer(ask, kept.sample, kept.sample.n, None, kept.sglang_version)


def _keep(answer: Answer, shelf: Shelf | None) -> None:
    if shelf is not None:
        shelf.put(answer.ask.saved.repro, answer.sample, answer.sglang_version)


def _run(worker: WorkerProcess, answer: Answer, program_seconds: float, version: str) -> Answer:
    """The answer with the runs that are missing, made in a process in which none has run before."""
    ask, sample, shown = answer.ask, answer.sample, answer.finding
    repro = ask.saved.repro
    worker.renew()
    while ask.runs_missing(sample) > 0:
        trace = worker.run(repro.program, program_seconds)
        sample = Sample((*sample.runs, run_of(trace, repro)))
        shown = shown or own_bug(trace, repro)
    return replace(answer, sample=sample, finding=shown, sglang_version=version)
