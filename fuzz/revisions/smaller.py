"""Makes a saved repro as small as it can be, on one target."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz.confirm import Confirmed, Patience, confirm, smallest
from fuzz.process import WorkerError
from fuzz.program import Program
from fuzz.revisions.rig import CANNOT_TELL, NOT_SHOWN, Rig, device_of, open_worker, read_runnable, silent
from fuzz.revisions.sample import own_bug, run_of

SHRINK_SECONDS = 600.0  # somebody is waiting for it; far more than the few hundred short runs that it takes


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


def shrink_path(path: Path, target: str | None, rig: Rig, tell: Callable[[str], None] = silent) -> ShrinkResult:
    """The smallest program that shows what ``path`` shows. Writes nothing. Raises ProgramError and TargetError."""
    saved = read_runnable(path)
    repro = saved.repro
    target = target or repro.found_on or "installed"
    patience = Patience(rig.program_seconds, time.monotonic() + SHRINK_SECONDS)
    version = ""
    try:
        with open_worker(target, device_of([saved]), rig, threading.Event()) as (worker, ready):
            version = ready.sglang_version
            tell(f"running {path.name} on {target}")
            trace = worker.run(repro.program, rig.program_seconds)
            finding = own_bug(trace, repro)
            if finding is None:
                reason = f"the bug does not show here: {run_of(trace, repro).detail}"
                return ShrinkResult(path, target, repro.program, None, reason, version)
            confirmed = confirm(worker, repro.program, finding, patience)
            if confirmed.shown:
                tell(f"shrinking {len(repro.program.ops)} ops that show {finding.signature}")
                confirmed = smallest(worker, confirmed, patience)
            return ShrinkResult(path, target, repro.program, confirmed, "", version)
    except WorkerError as error:
        return ShrinkResult(path, target, repro.program, None, str(error), version)
