"""The programs of one seed on one target, run in order and as far as somebody asks, each at most once."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fuzz.agenda import SEED_STRIDE
from fuzz.campaign import SESSION_PROGRAMS_MAX
from fuzz.confirm import bugs
from fuzz.finding import Finding
from fuzz.generate import program_for
from fuzz.launch import WorkerOptions
from fuzz.limits import Limits
from fuzz.order import CampaignOptions
from fuzz.process import WorkerProcess
from fuzz.program import Program
from fuzz.store import make_folder
from fuzz.targets import open_target
from fuzz.worker import EXECUTOR, PAIRS, SPECULATIVE

PROGRAM_SECONDS = 60.0  # a program takes a second or two; one that takes this long on a busy machine hangs


class Side:
    """A held resource: a target and the worker that runs programs on it. ``close`` gives back both.

    Raises TargetError where the target cannot be had.
    """

    def __init__(
        self, target: str, out: Path, python: str, executor: str = EXECUTOR, stop: threading.Event | None = None
    ) -> None:
        self.target, self.version = target, ""
        self._stack = ExitStack()
        make_folder(out)
        folder = self._stack.enter_context(open_target(target)).folder
        self.worker = WorkerProcess(WorkerOptions(python, folder, out, executor=executor), stop)
        self._stack.callback(self.worker.close)

    def start(self) -> None:
        """Import the target, unless it is there. Raises WorkerError."""
        if not self.version:
            self.worker.launch()
            self.version = self.worker.wait_ready().sglang_version

    def limits(self, pairs: tuple[str, ...]) -> Limits:
        """What `seamripper run` would draw programs within here. Raises WorkerError and CampaignError."""
        self.start()
        options = CampaignOptions(self.target, Path(), Path(), self.worker.options.python, pairs)
        chosen = options.choose(self.worker.ask(PAIRS))
        limits = options.limits(chosen, self.worker.ask(SPECULATIVE, chosen))
        self.worker.renew()  # it has run programs to find that out
        return limits

    def rest(self) -> None:
        """End the worker; the next program starts it again."""
        self.worker.close()

    def close(self) -> None:
        self._stack.close()


@dataclass(frozen=True, slots=True)
class Seen:
    """One program and the bugs that it showed. ``seconds``: of running, from the trail's first program to its end."""

    program: Program
    findings: tuple[Finding, ...]
    seconds: float


class Trail:
    def __init__(self, side: Side, limits: Limits, seed: int) -> None:
        self._side, self._limits, self._seed = side, limits, seed
        self._seen: list[Seen] = []

    @property
    def seconds(self) -> float:
        return self._seen[-1].seconds if self._seen else 0.0

    def at(self, index: int) -> Seen:
        """The program at this place; those before it are run first. Raises WorkerError."""
        while len(self._seen) <= index:
            self._step()
        return self._seen[index]

    def _step(self) -> None:
        number, worker = len(self._seen), self._side.worker
        if number and number % SESSION_PROGRAMS_MAX == 0:
            worker.renew()
        program = program_for(self._seed * SEED_STRIDE + number, self._limits)
        started = time.monotonic()
        trace = worker.run(program, PROGRAM_SECONDS)
        self._seen.append(Seen(program, bugs(trace), self.seconds + time.monotonic() - started))
