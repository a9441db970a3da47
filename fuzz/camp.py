"""One of two targets that are driven in step: its workers, what it has shown, and its records on disk."""

from __future__ import annotations

import threading
import time

from fuzz.order import CampaignOptions
from fuzz.outcome import blank_record, noteworthy, with_outcome
from fuzz.process import WorkerProcess
from fuzz.program import Program
from fuzz.record import Record
from fuzz.store import Store
from fuzz.tally import Tally
from fuzz.trace import Trace


class Camp:
    """``store.folder`` gets what a campaign's does; ``version`` is set when the target is imported."""

    def __init__(self, options: CampaignOptions, store: Store, workers: list[WorkerProcess]) -> None:
        self.options, self.store, self.workers = options, store, workers
        self.started = time.monotonic()
        self.tally = Tally()
        self.version = ""
        self._lock = threading.Lock()

    def run(self, worker: WorkerProcess, program: Program, seed: int) -> tuple[Record, Trace]:
        """Run it and write its record. Raises Stopped and WorkerError, and leaves no record then."""
        trace = worker.run(program, self.options.program_seconds)
        elapsed_seconds = time.monotonic() - self.started
        blank = blank_record(self.options, program, seed, self.version, elapsed_seconds, worker.options.number)
        record = with_outcome(blank, trace)
        with self._lock:
            self.tally.count_program(record)
            entries = [self.tally.count_finding(finding, record, program.text) for finding in noteworthy(trace)]
            if any(entry is not None for entry in entries):
                self.store.write_findings(list(self.tally.findings.values()))
            self.store.end(record)
        return record, trace
