"""What runs saved repros: an interpreter, an executor, and a worker on a target for as long as it is needed."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fuzz.launch import WorkerOptions
from fuzz.process import Ready, WorkerError, WorkerProcess
from fuzz.repro import Repro, read_program, read_repro
from fuzz.store import make_folder
from fuzz.targets import open_target
from fuzz.worker import EXECUTOR

PROGRAM_SECONDS = 120.0  # as in a campaign: a program that takes longer counts as hung
SHOWN, NOT_SHOWN, CANNOT_TELL = 1, 0, 125  # what `git bisect run` takes for bad, good and skip


@dataclass(frozen=True, slots=True)
class Rig:
    """The interpreter and executor for workers, where their logs go (None: nowhere), and where results are kept.

    ``results`` is the folder of the cache; None: nothing is looked up and nothing kept.
    """

    python: str = sys.executable
    out: Path | None = None
    program_seconds: float = PROGRAM_SECONDS
    executor: str = EXECUTOR
    results: Path | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """A repro and the file that it was read from."""

    path: Path
    repro: Repro


def read_saved(path: Path) -> Saved:
    """Raises ProgramError."""
    return Saved(path, read_repro(path))


def read_runnable(path: Path) -> Saved:
    """Raises ProgramError, also for what an audit found."""
    read_program(path)
    return read_saved(path)


def silent(text: str) -> None:
    """For callers that show no progress."""


def device_of(saved: Sequence[Saved]) -> str:
    return "cuda" if any(one.repro.program.world.device == "cuda" for one in saved) else "cpu"


@contextmanager
def open_worker(
    target: str, device: str, rig: Rig, stop: threading.Event, number: int = 0
) -> Iterator[tuple[WorkerProcess, Ready]]:
    """A worker that has imported the target. Raises TargetError and WorkerError."""
    with open_target(target) as had, log_folder(rig.out) as out:
        worker = WorkerProcess(WorkerOptions(rig.python, had.folder, out, number, device, rig.executor), stop)
        try:
            worker.launch()
            yield worker, worker.wait_ready()
        finally:
            worker.close()


@contextmanager
def log_folder(out: Path | None) -> Iterator[Path]:
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
