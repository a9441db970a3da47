"""Measures the oracles: one-token faults, one at a time, in a copy of a release; which does a short campaign detect?

A mutant counts as detected when a program shows a bug that the very same program does not show on the release itself,
run twice where the release has that signature elsewhere: a fault that breaks every step is not hidden by one that the
release has in some.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fuzz.agenda import SEED_STRIDE
from fuzz.confirm import bugs, shown_in
from fuzz.finding import Signature
from fuzz.generate import program_for
from fuzz.launch import WorkerOptions
from fuzz.limits import Limits
from fuzz.mutants import Mutant, choose
from fuzz.order import CampaignError, CampaignOptions
from fuzz.process import WorkerError, WorkerProcess
from fuzz.program import Program
from fuzz.scratch import lay_out
from fuzz.store import make_folder, write_whole
from fuzz.targets import Target, TargetError, open_target
from fuzz.worker import EXECUTOR, PAIRS, SPECULATIVE

WATCHING = "fuzz.executed"  # an executor that notes lines; named only, since it imports torch
PROGRAM_SECONDS = 30  # a mutant that loops for ever is told from one that is slow: programs take a second or two
WATCHED = 100  # programs: each mode of each pair a few times
BASELINE, RESULTS = "baseline.json", "mutants.jsonl"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """``seconds`` of campaign for each mutant, counted from SGLang's import; ``watched`` programs on the release.

    Which lines run decides which mutants there are: a number of programs, so that they are the same everywhere.
    """

    target: str
    out: Path
    python: str
    mutants: int
    seed: int = 0
    seconds: float = 60.0
    pairs: tuple[str, ...] = ()
    executor: str = EXECUTOR
    watching: str = WATCHING
    watched: int = WATCHED
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the release itself does: which pairs it runs and how, its lines that programs execute, what they show."""

    pairs: tuple[str, ...]
    speculative: dict[str, dict[str, int]]
    executed: dict[str, list[int]]
    signatures: tuple[str, ...]

    @property
    def limits(self) -> Limits:
        return Limits(pairs=self.pairs, speculative=self.speculative)


@dataclass(frozen=True, slots=True)
class Result:
    """``state`` is detected, survived, or stillborn (SGLang no longer imports). ``seconds``, ``programs``: until then.

    ``noticed`` are the signatures new with it that are no bug's: what the harness or SGLang itself could not do.
    """

    number: int
    mutant: Mutant
    state: str
    signature: str
    title: str
    seconds: float
    programs: int
    noticed: tuple[str, ...]
    diff: str

    @property
    def oracle(self) -> str:
        return self.signature.partition("/")[0]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "mutant": self.mutant.to_json(), "oracle": self.oracle}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Result:
        data = {name: value for name, value in data.items() if name != "oracle"}
        return cls(**{**data, "mutant": Mutant(**data["mutant"]), "noticed": tuple(data["noticed"])})


def bench(options: BenchOptions, say: Say) -> list[Result]:
    """Try each mutant; results are written down as they come, and a bench begun in the same folder is taken up again.

    Raises CampaignError, TargetError, WorkerError or StoreError.
    """
    make_folder(options.out)
    say(f"getting {options.target}")
    with open_target(options.target) as target:
        folder = target.folder
        if folder is None:
            raise TargetError("target 'installed' cannot be copied; expected pypi:VERSION, path:DIR or git:DIR@REV")
        baseline = _baseline(options, folder, say)
        mutants = choose(folder, baseline.executed, options.mutants, options.seed)
        done = _earlier(options, mutants)
        with _Release(options, target) as release:
            trials = [
                _Trial(options, baseline, release, number, mutant)
                for number, mutant in enumerate(mutants)
                if number not in done
            ]
            for result in _side_by_side(trials, folder, options, release.stop):
                done[result.number] = result
                say(
                    f"{len(done)} of {len(mutants)} mutants tried, {sum(by_oracle(list(done.values())).values())} detected"
                )
                with (options.out / RESULTS).open("a") as file:
                    file.write(json.dumps(result.to_json()) + "\n")
    return [done[number] for number in sorted(done)]


def _side_by_side(
    trials: Sequence[_Trial], folder: Path, options: BenchOptions, stop: threading.Event
) -> Iterator[Result]:
    """Results as they come. Whatever ends it early ends the trials under way as well."""
    with ThreadPoolExecutor(options.workers) as pool:
        try:
            for future in as_completed([pool.submit(trial.run, folder) for trial in trials]):
                yield future.result()
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def by_oracle(results: Sequence[Result]) -> dict[str, int]:
    """How many mutants each oracle detected first, most first."""
    oracles = [result.oracle for result in results if result.state == "detected"]
    return {
        oracle: oracles.count(oracle) for oracle in sorted(set(oracles), key=lambda name: (-oracles.count(name), name))
    }


def _baseline(options: BenchOptions, folder: Path, say: Say) -> Baseline:
    """From the file of an earlier bench in this folder, else by a campaign on the release itself, watched."""
    asked = {"target": options.target, "seed": options.seed, "watched": options.watched, "pairs": list(options.pairs)}
    path = options.out / BASELINE
    if path.exists():
        data = json.loads(path.read_text())
        if data.pop("asked") != asked:
            raise CampaignError(f"{path} is of another bench; give this one another --out")
        return Baseline(**{**data, "pairs": tuple(data["pairs"]), "signatures": tuple(data["signatures"])})
    say("running the release itself, to learn which lines run and what it shows")
    notes = options.out / "watched"
    make_folder(notes)
    with closing(WorkerProcess(WorkerOptions(options.python, folder, notes, executor=options.watching))) as worker:
        worker.launch()
        worker.wait_ready()
        campaign = CampaignOptions(options.target, options.out, options.out, options.python, options.pairs)
        pairs = campaign.choose(worker.ask(PAIRS))
        limits = campaign.limits(pairs, worker.ask(SPECULATIVE, pairs))
        signatures: set[str] = set()
        for index in range(options.watched):
            trace = worker.run(program_for(_seed(options, index), limits), PROGRAM_SECONDS)
            signatures.update(str(finding.signature) for finding in trace.findings)
        executed = _executed(notes, folder)
    baseline = Baseline(pairs, dict(limits.speculative or {}), executed, tuple(sorted(signatures)))  # type: ignore[arg-type]
    write_whole(path, json.dumps({"asked": asked, **asdict(baseline)}) + "\n")
    return baseline


def _seed(options: BenchOptions, index: int) -> int:
    """Of the program that `seamripper run` with this seed would run at that place."""
    return options.seed * SEED_STRIDE + index


def _executed(notes: Path, folder: Path) -> dict[str, list[int]]:
    """What the watched workers noted: file, relative to the target's folder -> its lines that ran."""
    lines: dict[str, set[int]] = {}
    for note in notes.glob("executed-*.json"):
        for name, seen in json.loads(note.read_text()).items():
            if Path(name).is_relative_to(folder.resolve()):
                lines.setdefault(Path(name).relative_to(folder.resolve()).as_posix(), set()).update(seen)
    return {name: sorted(lines[name]) for name in sorted(lines)}


def _earlier(options: BenchOptions, mutants: list[Mutant]) -> dict[int, Result]:
    """Results of an interrupted bench, as far as they are of the same mutants."""
    path = options.out / RESULTS
    lines = path.read_text().splitlines() if path.exists() else []
    results = [Result.from_json(json.loads(line)) for line in lines if line.endswith("}")]
    return {
        result.number: result
        for result in results
        if result.number < len(mutants) and mutants[result.number] == result.mutant
    }


class _Release:
    """The release itself, in a worker that starts when it is first asked. Trials ask it one at a time."""

    def __init__(self, options: BenchOptions, target: Target) -> None:
        self.stop = threading.Event()
        out = options.out / "release"
        make_folder(out)
        launch = WorkerOptions(options.python, target.folder, out, executor=options.executor)
        self._worker, self._lock = WorkerProcess(launch, self.stop), threading.Lock()
        self._shown: dict[int, set[str]] = {}

    def __enter__(self) -> _Release:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    def shows(self, index: int, program: Program, signature: Signature, runs: int = 1) -> bool:
        """Whether the program of that place in the campaign shows it in one of ``runs``; the first is for all."""
        with self._lock:
            if index not in self._shown:
                found = bugs(self._worker.run(program, PROGRAM_SECONDS))
                self._shown[index] = {str(finding.signature) for finding in found}
            if str(signature) in self._shown[index]:
                return True
            again = (self._worker.run(program, PROGRAM_SECONDS) for _ in range(runs - 1))
            return any(shown_in(trace, signature) for trace in again)


class _Trial:
    """One mutant's campaign."""

    def __init__(
        self, options: BenchOptions, baseline: Baseline, release: _Release, number: int, mutant: Mutant
    ) -> None:
        self.options, self.baseline, self.release = options, baseline, release
        self.number, self.mutant = number, mutant
        self.known = set(baseline.signatures)
        self.noticed: set[str] = set()
        self.programs = 0
        self.diff = ""
        self.started = time.monotonic()

    def run(self, folder: Path) -> Result:
        text = (folder / self.mutant.file).read_text(encoding="utf-8")
        self.diff = self.mutant.diff(text)
        out = self.options.out / f"mutant-{self.number:03}"
        copy = out / "target"
        if copy.exists():  # of a trial that was interrupted
            shutil.rmtree(copy)
        lay_out(folder, copy, self.mutant.file, self.mutant.apply(text))
        launch = WorkerOptions(self.options.python, copy, out, executor=self.options.executor)
        with closing(WorkerProcess(launch, self.release.stop)) as worker:
            worker.launch()
            try:
                worker.wait_ready()
            except WorkerError as error:
                return self.result("stillborn", "", str(error))
            self.started = time.monotonic()
            return self.campaign(worker)

    def campaign(self, worker: WorkerProcess) -> Result:
        limits = self.baseline.limits
        while time.monotonic() - self.started < self.options.seconds:
            program = program_for(_seed(self.options, self.programs), limits)
            trace = worker.run(program, PROGRAM_SECONDS)
            seconds = time.monotonic() - self.started
            for finding in bugs(trace):
                runs = 2 if str(finding.signature) in self.known else 1
                if not self.release.shows(self.programs, program, finding.signature, runs):
                    self.programs += 1
                    return self.result("detected", str(finding.signature), finding.title, seconds)
                self.known.add(str(finding.signature))
            self.programs += 1
            others = {str(finding.signature) for finding in trace.findings} - self.known
            self.noticed |= others
        return self.result("survived", "", "")

    def result(self, state: str, signature: str, title: str, seconds: float | None = None) -> Result:
        taken = time.monotonic() - self.started if seconds is None else seconds
        noticed = tuple(sorted(self.noticed - {signature}))
        return Result(
            self.number, self.mutant, state, signature, title, round(taken, 1), self.programs, noticed, self.diff
        )
