"""Saved repros on other revisions of SGLang: does it still show (replay), where does it (compare), is there a smaller one."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fuzz import sanitizer
from fuzz.comparison import Cell, CompareResult, Row, in_order
from fuzz.confirm import Confirmed, Patience, bugs, confirm, smallest
from fuzz.finding import Finding, Signature, Verdict
from fuzz.launch import WorkerOptions
from fuzz.process import WorkerError, WorkerProcess
from fuzz.program import Program, ProgramError
from fuzz.repro import Repro, read_program, read_repro, repros_in
from fuzz.sanitizer import Sanitized, ToolFailure
from fuzz.store import make_folder
from fuzz.targets import TargetError, open_target
from fuzz.trace import Trace
from fuzz.worker import EXECUTOR

__all__ = [
    "Cell",
    "CompareResult",
    "ReplayResult",
    "Rig",
    "ShrinkResult",
    "compare",
    "read_program",
    "replay",
    "replay_sanitized",
    "shrink_path",
]

PROGRAM_SECONDS = 120.0  # as in a campaign: a program that takes longer counts as hung
SHRINK_SECONDS = 600.0  # somebody is waiting for it; far more than the few hundred short runs that it takes
SHOWN, NOT_SHOWN, CANNOT_TELL = 1, 0, 125  # what `git bisect run` takes for bad, good and skip


def _silent(text: str) -> None:
    """For callers that show no progress."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """``cell`` says what happened; ``finding`` is the fault as it showed this time."""

    path: Path
    cell: Cell
    signature: str
    finding: Finding | None

    @property
    def exit_code(self) -> int:
        return {"bug": SHOWN, "clean": NOT_SHOWN}.get(self.cell.state, CANNOT_TELL)

    def to_json(self) -> dict[str, Any]:
        finding = self.finding.to_json() if self.finding else None
        return {**asdict(self.cell), "signature": self.signature, "finding": finding, "exit_code": self.exit_code}


@dataclass(frozen=True, slots=True)
class ShrinkResult:
    """``confirmed`` is None where the bug did not show, so that nothing could be shrunk; ``reason`` says why."""

    path: Path
    target: str
    before: Program
    confirmed: Confirmed | None
    reason: str
    sglang_version: str

    @property
    def exit_code(self) -> int:
        return NOT_SHOWN if self.confirmed else CANNOT_TELL


@dataclass(frozen=True, slots=True)
class Rig:
    """What runs the repros: the interpreter and executor for workers, and where their logs go (None: nowhere)."""

    python: str = sys.executable
    out: Path | None = None
    program_seconds: float = PROGRAM_SECONDS
    executor: str = EXECUTOR


def replay(path: Path, target: str | None, times: int, rig: Rig, tell: Callable[[str], None] = _silent) -> ReplayResult:
    """``replay_all`` of one."""
    (result,) = replay_all([path], target, times, rig, tell)
    return result


def replay_all(
    files: Sequence[Path], target: str | None, times: int, rig: Rig, tell: Callable[[str], None] = _silent
) -> list[ReplayResult]:
    """Run each repro ``times`` times on ``target`` (default: the one it was found on, else the installed SGLang).

    One worker a target. Raises ProgramError and TargetError; a worker that cannot start is an answer (infra, 125).
    """
    by_target: dict[str, list[tuple[Path, Repro]]] = {}
    for path in files:
        repro = read_repro(path)
        by_target.setdefault(target or repro.found_on or "installed", []).append((path, repro))
    results: dict[Path, ReplayResult] = {}
    for spec, repros in by_target.items():
        tell(f"replaying {len(repros)} repro(s) on {spec}")
        column = _column(spec, repros, times, rig, threading.Event())
        for (path, repro), (cell, finding) in zip(repros, column, strict=True):
            results[path] = ReplayResult(path, cell, str(repro.signature or ""), finding)
    return [results[path] for path in files]


def replay_sanitized(
    files: Sequence[Path], target: str | None, tool: str, rig: Rig, tell: Callable[[str], None] = _silent
) -> list[ReplayResult]:
    """Run each repro once on a GPU under compute-sanitizer; what the tool reports counts as shown.

    Raises SanitizerError where there is no tool; a run that comes to no end, as without a GPU, is an answer (infra, 125).
    """
    sanitizer.find()
    results = []
    for path in files:
        repro = read_repro(path)
        spec = target or repro.found_on or "installed"
        tell(f"running {path.name} on {spec} under {sanitizer.PROGRAM} {tool}")
        with open_target(spec) as had, _log_folder(rig.out) as out:
            options = WorkerOptions(rig.python, had.folder, out, executor=rig.executor)
            try:
                seen = sanitizer.run(repro.program, tool, options, rig.program_seconds)
            except ToolFailure as error:
                cell, finding = Cell(str(path), spec, "infra", 0, 1, str(error)), None
            else:
                cell, finding = _sanitized_cell(path, spec, repro, seen)
        results.append(ReplayResult(path, cell, str(repro.signature or ""), finding))
    return results


def _sanitized_cell(path: Path, spec: str, repro: Repro, seen: Sanitized) -> tuple[Cell, Finding | None]:
    """The tool's reports are put into the evidence of the repro's own finding; where that one is not met they stand alone."""
    traces = [seen.trace] if seen.trace is not None else []
    own = next((found for trace in traces if (found := _own(trace, repro.signature))), None)
    version = traces[0].sglang_version if traces else ""
    if not seen.findings:
        state, k, detail = _state(traces, repro.signature)
        return Cell(str(path), spec, state, k, 1, detail, version), own
    first = seen.findings[0]
    finding = first if own is None else replace(own, evidence={**own.evidence, **first.evidence})
    detail = ", ".join(str(reported.signature) for reported in seen.findings)
    return Cell(str(path), spec, "bug", 1, 1, detail, version), finding


def compare(
    paths: Sequence[Path],
    targets: Sequence[str],
    times: int,
    rig: Rig,
    jobs: int = 1,
    tell: Callable[[str], None] = _silent,
) -> CompareResult:
    """Run every repro in ``paths`` (files, or folders of scripts) on every target, one worker a target.

    A target that cannot be had or does not import costs its column (infra). Raises ProgramError for a bad path or
    file, and TargetError where not one target can be had.
    """
    files = [file for path in paths for file in repros_in(path)]
    if not files:
        raise ProgramError(f"no repro scripts in {', '.join(map(str, paths))}; expected *.py files that `run` saved")
    repros = [(file, read_repro(file)) for file in files]
    stop = threading.Event()
    missing: list[TargetError] = []

    def column(indexed: tuple[int, str]) -> list[Cell]:
        number, target = indexed
        tell(f"{target}: {len(repros)} repro(s), {times} run(s) each")
        try:
            return [cell for cell, _ in _column(target, repros, times, rig, stop, number)]
        except TargetError as error:
            missing.append(error)
            return [Cell(str(path), target, "infra", 0, 0, str(error)) for path, _ in repros]

    with ThreadPoolExecutor(jobs) as pool:
        try:
            columns = list(pool.map(column, enumerate(targets)))
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if len(missing) == len(targets):
        raise missing[0]
    lines = zip(*columns, strict=True)
    rows = (
        Row(str(path), str(repro.signature or ""), in_order(line))
        for (path, repro), line in zip(repros, lines, strict=True)
    )
    return CompareResult(tuple(targets), tuple(rows))


def shrink_path(path: Path, target: str | None, rig: Rig, tell: Callable[[str], None] = _silent) -> ShrinkResult:
    """The smallest program that shows what ``path`` shows. Writes nothing. Raises ProgramError and TargetError."""
    repro = read_repro(path)
    target = target or repro.found_on or "installed"
    patience = Patience(rig.program_seconds, time.monotonic() + SHRINK_SECONDS)
    version = ""
    try:
        with _worker(target, [(path, repro)], rig, threading.Event()) as (worker, version):
            tell(f"running {path.name} on {target}")
            trace = worker.run(repro.program, rig.program_seconds)
            finding = _own(trace, repro.signature)
            if finding is None:
                _, _, detail = _state([trace], repro.signature)
                return ShrinkResult(path, target, repro.program, None, f"the bug does not show here: {detail}", version)
            confirmed = confirm(worker, repro.program, finding, patience)
            if confirmed.shown:
                tell(f"shrinking {len(repro.program.ops)} ops that show {finding.signature}")
                confirmed = smallest(worker, confirmed, patience)
            return ShrinkResult(path, target, repro.program, confirmed, "", version)
    except WorkerError as error:
        return ShrinkResult(path, target, repro.program, None, str(error), version)


def _column(
    target: str,
    repros: Sequence[tuple[Path, Repro]],
    times: int,
    rig: Rig,
    stop: threading.Event,
    number: int = 0,
) -> list[tuple[Cell, Finding | None]]:
    """All repros on one target, each in a process of its own. A worker that cannot start is infra for the rest."""
    column: list[tuple[Cell, Finding | None]] = []
    try:
        with _worker(target, repros, rig, stop, number) as (worker, version):
            for path, repro in repros:
                worker.renew()
                traces = [worker.run(repro.program, rig.program_seconds) for _ in range(times)]
                state, k, detail = _state(traces, repro.signature)
                shown = next((own for trace in traces if (own := _own(trace, repro.signature))), None)
                column.append((Cell(str(path), target, state, k, times, detail, version), shown))
    except WorkerError as error:
        column += [(Cell(str(path), target, "infra", 0, 0, str(error)), None) for path, _ in repros[len(column) :]]
    return column


@contextmanager
def _worker(
    target: str, repros: Sequence[tuple[Path, Repro]], rig: Rig, stop: threading.Event, number: int = 0
) -> Iterator[tuple[WorkerProcess, str]]:
    """A worker that is ready, and the SGLang version it has. Raises TargetError and WorkerError."""
    device = "cuda" if any(repro.program.world.device == "cuda" for _, repro in repros) else "cpu"
    with open_target(target) as had, _log_folder(rig.out) as out:
        worker = WorkerProcess(WorkerOptions(rig.python, had.folder, out, number, device, rig.executor), stop)
        try:
            worker.launch()
            yield worker, worker.wait_ready().sglang_version
        finally:
            worker.close()


@contextmanager
def _log_folder(out: Path | None) -> Iterator[Path]:
    """``out``, or a folder that is removed again unless a worker failed and its log is worth reading."""
    if out is not None:
        make_folder(out)
        yield out
        return
    folder = Path(tempfile.mkdtemp(prefix="seamripper-"))
    try:
        yield folder
    except WorkerError:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _own(trace: Trace, signature: Signature | None) -> Finding | None:
    """The bug that the repro is about: the one of its signature, or any where it names none."""
    return next((finding for finding in bugs(trace) if signature in (None, finding.signature)), None)


def _state(traces: Sequence[Trace], signature: Signature | None) -> tuple[str, int, str]:
    """(state, k, detail) of the runs of one repro; "clean" only if each run was completed without a finding."""
    own = [finding for trace in traces if (finding := _own(trace, signature))]
    if own:
        return "bug", len(own), str(own[0].signature)
    other = [found[0] for trace in traces if (found := bugs(trace))]
    if other:
        return "other", len(other), str(other[0].signature)
    for verdict in (Verdict.INFRA, Verdict.STUB_GAP, Verdict.UNSUPPORTED):
        for finding in (finding for trace in traces for finding in trace.findings if finding.verdict is verdict):
            return verdict.value, 0, " ".join(f"{finding.title}: {finding.message}".split())[:500]
    if any(not trace.steps for trace in traces):
        return "infra", 0, "no step was run"
    return "clean", 0, "every run was completed without a finding"
