"""Looks into a new finding: confirm it, shrink it, and save what shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fuzz.confirm import (
    CONFIRM_RUNS,
    CONFIRM_SHARE,
    TRIAL_RUNS,
    Confirmed,
    Patience,
    Real,
    confirm,
    confirm_real,
    smallest,
)
from fuzz.control import control, is_borderline
from fuzz.death import HANG
from fuzz.finding import Finding
from fuzz.order import CampaignOptions
from fuzz.process import Stopped, WorkerError, WorkerProcess
from fuzz.program import Program, ProgramError
from fuzz.repro import read_repro
from fuzz.script import Provenance, write_repro
from fuzz.store import write_whole

HANG_SECONDS = 20  # for a program that hung before, to be believed that it hangs again
CORRUPT_SECONDS = 10  # for a corrupted input: there are many, and both runs that are compared are of one process
LAST_LOOK_SECONDS = 30  # for the run under way then, which may be of the real runner and takes seconds to start
LAST_SECONDS = 10  # for what is under way when time is up; programs take a second or two


@dataclass(frozen=True, slots=True)
class Examined:
    """``script`` is where the finding is saved, "" if nowhere; ``is_whole`` whether nothing cut the look short.

    ``dismissed``: why it is no finding, where its control says so.
    """

    confirmed: Confirmed
    script: str
    is_whole: bool
    dismissed: str = ""


@dataclass(frozen=True, slots=True)
class Examiner:
    """``seconds`` is how long a look may take, but for the run under way then; ``version`` SGLang's.

    ``pairs`` are those that a program may be moved to, to show its fault alone.
    """

    options: CampaignOptions
    version: str
    seconds: float
    stop: threading.Event
    pairs: Sequence[str] = ()

    def look(self, worker: WorkerProcess, program: Program, finding: Finding, own_script: str) -> Examined:
        """``own_script``: what an earlier look that was cut short saved, "" if nothing; it is written again."""
        path = self.options.repros / f"{finding.signature.slug}.py"
        is_taken = path.exists() and str(path) != own_script
        confirmed, is_whole = Confirmed(_saved(path, finding) or program, finding, shown=0, runs=0), False
        patience = self._patience(worker, finding)
        shrinks = self.options.shrink and not is_taken
        enough = TRIAL_RUNS if shrinks and not is_borderline(finding) else CONFIRM_RUNS
        try:
            if self.stop.is_set():  # no new process for a run that would not be begun
                raise Stopped
            confirmed = confirm(worker, confirmed.program, finding, patience.share(CONFIRM_SHARE), enough)
            if not confirmed.shown and confirmed.program != program:
                confirmed = confirm(worker, program, finding, patience, enough)
            if confirmed.shown and is_borderline(confirmed.finding):
                tried = control(worker, confirmed.program, confirmed.finding, patience)
                if not tried.is_passed:
                    return Examined(confirmed, "", True, tried.why_dismissed)
            if shrinks and confirmed.shown:
                confirmed = smallest(worker, confirmed, patience, pairs=self.pairs)
            if confirmed.shown:
                confirmed = replace(confirmed, real=self._under_real_runner(worker, confirmed, patience))
            is_whole = True
        except (Stopped, WorkerError):
            pass  # the finding is saved as it stands, and the worker's next program meets the same trouble
        if not confirmed.shown and confirmed.runs:
            return Examined(confirmed, "", is_whole)  # a script of it would show nothing
        if not is_taken:
            text = write_repro(confirmed.program, confirmed.finding, confirmed.trace, self._provenance(confirmed))
            write_whole(path, text)
        return Examined(confirmed, str(path), is_whole)

    def _under_real_runner(self, worker: WorkerProcess, confirmed: Confirmed, patience: Patience) -> Real | None:
        try:
            return confirm_real(worker, confirmed, patience)
        except Stopped:
            if self.stop.is_set():
                raise
            return Real(why_not="no time was left")

    def _patience(self, worker: WorkerProcess, finding: Finding) -> Patience:
        seconds = HANG_SECONDS if finding.signature.kind == HANG else self.options.program_seconds
        length = min(CORRUPT_SECONDS, self.seconds) if finding.signature.is_corrupt else self.seconds
        deadline = time.monotonic() + length
        worker.until = deadline + LAST_LOOK_SECONDS
        return Patience(min(seconds, self.options.program_seconds), deadline, self.stop.is_set)

    def _provenance(self, confirmed: Confirmed) -> Provenance:
        return Provenance(
            found_on=self.options.target,
            seen_on=(self.options.target,),
            shown=confirmed.shown,
            runs=confirmed.runs,
            command=self.options.command,
            versions=f"sglang {self.version}",
            real=confirmed.real,
        )


def _saved(path: Path, finding: Finding) -> Program | None:
    """The program of a script that is there already, if it is one of this finding."""
    try:
        repro = read_repro(path)
    except ProgramError:
        return None
    return repro.program if repro.signature == finding.signature else None
