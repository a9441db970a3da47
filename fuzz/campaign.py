"""A campaign: workers run one generated program after the other until the budget is spent, and every finding is kept.

The same command on the same out folder goes on where it stopped, whatever stopped it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fuzz.agenda import Agenda
from fuzz.confirm import Patience
from fuzz.engines import Engine, Random, engine_of
from fuzz.examine import LAST_SECONDS, Examiner
from fuzz.finding import Finding
from fuzz.follow_up import FollowUp, seconds_past_end
from fuzz.gaps import Gaps, gaps_of, read_cells
from fuzz.known import Known, known_of
from fuzz.launch import WorkerOptions
from fuzz.limits import Limits
from fuzz.logbook import Logbook
from fuzz.looking import LONGEST_SECONDS, Looking, last_seconds, shortest_of
from fuzz.memory import limit_mb
from fuzz.order import CampaignError, CampaignOptions, CampaignResult, Progress
from fuzz.outcome import blank_record, not_run, noteworthy, with_outcome
from fuzz.process import Stopped, WorkerError, WorkerProcess
from fuzz.program import Program, parse
from fuzz.record import Record
from fuzz.resume import Past, read_past
from fuzz.since import Earlier
from fuzz.store import Store
from fuzz.targets import open_target
from fuzz.terms import settle
from fuzz.trace import Trace

__all__ = ["CampaignError", "CampaignOptions", "CampaignResult", "Progress", "run_campaign"]

SESSION_PROGRAMS_MAX = 500  # then a fresh process: whatever a target leaks stays bounded

Item = TypeVar("Item")


def run_campaign(options: CampaignOptions, progress: Progress) -> CampaignResult:
    """Run it. Ctrl-C ends it early and loses nothing.

    Raises CampaignError for options that cannot be, TargetError for a target that cannot be had, StoreError where
    the out folder or the repros cannot be written.
    """
    options.check()
    known = known_of(options)
    progress.phase(f"getting {options.target}")
    with open_target(options.target) as target, closing(Store(options.out)) as store:
        past = read_past(options.out, progress.note)
        if past.terms is not None:
            past.terms.check(options)
        result = _Campaign(options, progress, store, known, past).run(target.folder)
    progress.finished(result)
    return result


class _Campaign:
    """The state that the workers' threads share; ``lock`` guards all of it, the store and the progress."""

    def __init__(
        self, options: CampaignOptions, progress: Progress, store: Store, known: Mapping[str, Known], past: Past
    ) -> None:
        self.options, self.progress, self.store, self.past = options, progress, store, past
        self.started = time.monotonic() - past.elapsed_seconds
        self.deadline = self.started + options.seconds if options.seconds is not None else float("inf")
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.interrupted = False
        self.reason = ""
        self.has_given_up = False
        self.log = Logbook(store, progress, known, past)
        self.follow_up = FollowUp(options, known, progress.note)
        self.version = past.terms.sglang_version if past.terms is not None else ""
        self.engine: Engine = Random(Limits())
        self.cells = read_cells(options.out, progress.note)
        self.gaps: Gaps | None = None

    def run(self, folder: Path | None) -> CampaignResult:
        options = self.options
        self.log.give_up(self.past.given_up)
        known, earlier = self.follow_up.known(self.log.counts), self.follow_up.earlier(self.log.counts)
        unexamined = self.log.tally.unexamined
        self.agenda = Agenda(options, self.deadline, self.past.seeds, unexamined, known, earlier)
        if self.past.records:
            self.progress.note(f"going on in {options.out}, where {self.log.tally.programs:,} programs have run")
        if self.version and self.agenda.is_empty:
            return self.result()
        memory_mb = options.memory_mb or limit_mb(options.device, options.workers)
        first = WorkerOptions(options.python, folder, options.out, 0, options.device, options.runs_with, memory_mb)
        workers = [WorkerProcess(replace(first, number=number), self.stop) for number in range(options.workers)]
        has_started = False
        try:
            if has_started := self.start(workers):
                self.drive(workers)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            if has_started:
                self.save_unexamined(workers[0])
            for worker in workers:
                worker.close()
        return self.result()

    def save_unexamined(self, worker: WorkerProcess) -> None:
        """Write scripts of what there was no time to look into, as it stands: the campaign has stopped."""
        self.stop.set()
        while (entry := self.agenda.take_unexamined()) is not None:
            if not entry["script"]:
                self.examine(worker, entry, 0.0)

    def start(self, workers: list[WorkerProcess]) -> bool:
        """Start all workers side by side; False if the target or every pair is out of reach."""
        options = self.options
        self.progress.phase(f"importing {options.target} in {len(workers)} worker(s)")
        try:
            for worker in workers:
                worker.launch()
            ready, *_ = [worker.wait_ready() for worker in workers]
            self.progress.phase("trying which pairs of backends start")
            terms = self.past.terms or settle(options, workers[0], ready.sglang_version)
        except WorkerError as error:
            self.give_up(str(error))
            return False
        if not terms.pairs:
            self.give_up("no pair of backends can run on this target here; `seamripper doctor` says why")
            return False
        terms.check_version(ready.sglang_version, options)
        self.version, self.pairs = ready.sglang_version, terms.pairs
        self.engine = engine_of(options, options.limits(terms.pairs, terms.speculative), self.version, self.tell)
        self.gaps = gaps_of(options, terms, self.deadline, self.log.tally.reached, self.past.seeds, self.cells)
        self.progress.started(options, ready, terms.pairs)
        self.looking = Looking(time.monotonic(), options.workers, shortest_of(options.seconds), self.deadline)
        return True

    def drive(self, workers: list[WorkerProcess]) -> None:
        """One thread a worker. The first error of ours stops all of them and is raised here."""
        with ThreadPoolExecutor(len(workers)) as pool:
            try:
                pending = {pool.submit(self.work, worker) for worker in workers}
                while pending:
                    done, pending = wait(pending, timeout=1, return_when=FIRST_EXCEPTION)
                    for future in done:
                        future.result()
            finally:
                self.stop.set()  # on leaving, the pool waits for its threads

    def work(self, worker: WorkerProcess) -> None:
        """Run programs until there are no more to run, looking into what they found; then try what they missed."""
        assert self.gaps is not None
        ran = 0
        while True:
            # What the drawn programs did not come to is tried first: its time is the campaign's last.
            seed, attempt = self.take(self.gaps.take) or (None, None)
            if attempt is None and (look := self.take(self.next_look)) is not None:
                self.look_into(worker, *look)
                continue
            if seed is None and (seed := self.take(self.agenda.take_seed)) is None:
                break
            program = self.engine.program(seed) if attempt is None else attempt.program
            if program is None:
                break
            if ran == SESSION_PROGRAMS_MAX:
                worker.renew()
                ran = 0
            try:
                trace = self.run_one(worker, program, seed)
            except Stopped:
                return
            except WorkerError as error:
                self.give_up(str(error))
                return
            ran += 1
            if attempt is None:
                self.engine.learn(program, trace)
            with self.lock:
                if attempt is not None:
                    self.gaps.settle(attempt, trace)
        while (look := self.take(self.next_last_look)) is not None:
            self.examine(worker, *look)
        while (known := self.take(self.agenda.take_known)) is not None:
            self.try_again(worker, known)
        while (earlier := self.take(self.agenda.take_earlier)) is not None:
            self.try_again(worker, earlier)

    def tell(self, text: str) -> None:
        with self.lock:
            self.progress.note(text)

    def take(self, item: Callable[[], Item | None]) -> Item | None:
        with self.lock:
            return None if self.stop.is_set() else item()

    def next_look(self) -> tuple[dict[str, Any], float] | None:
        """A finding to look into and how long, unless looking has had its share of the time."""
        if self.agenda.unexamined:
            seconds = self.looking.begin(time.monotonic())
            if seconds is not None and (entry := self.agenda.take_unexamined()) is not None:
                return entry, seconds
        return None

    def next_last_look(self) -> tuple[dict[str, Any], float] | None:
        """The same when there are no more programs to run: those left share a minute past the campaign's end."""
        seconds = last_seconds(self.deadline + LONGEST_SECONDS - time.monotonic(), self.agenda.unexamined)
        entry = self.agenda.take_unexamined()
        return None if entry is None else (entry, seconds)

    def look_into(self, worker: WorkerProcess, entry: dict[str, Any], seconds: float) -> None:
        began = time.monotonic()
        self.examine(worker, entry, seconds)
        with self.lock:
            self.looking.end(seconds, time.monotonic() - began)

    def run_one(self, worker: WorkerProcess, program: Program, seed: int) -> Trace:
        """Run it, write its record, look into what it found."""
        text = program.text
        blank = self.blank_record(worker, program, seed)
        lost = with_outcome(blank, not_run("the campaign ended again and again while this program ran"))
        with self.lock:
            self.store.begin(lost, text)
        worker.until = self.deadline + LAST_SECONDS
        try:
            trace = worker.run(program, self.options.program_seconds)
        except (Stopped, WorkerError) as error:
            with self.lock:
                self.store.drop(lost)  # it runs again when the campaign goes on
            if isinstance(error, WorkerError) or self.stop.is_set():
                raise
            trace = not_run("the campaign's time was up while this program ran")
            with self.lock:
                self.log.keep(self.filled(blank, trace), text, [])
            return trace
        with self.lock:
            self.agenda.put_unexamined(self.log.keep(self.filled(blank, trace), text, noteworthy(trace)))
        return trace

    def examine(self, worker: WorkerProcess, entry: dict[str, Any], seconds: float) -> None:
        """Confirm and shrink, then save the script; after a stop, what there is."""
        program, finding = parse(entry["program"]), Finding.from_json(entry)
        with self.lock:
            self.progress.phase(f"confirming and shrinking {finding.signature}")
            script = self.log.entry(finding)["script"]
        examiner = Examiner(self.options, self.version, seconds, self.stop, self.pairs)
        examined = examiner.look(worker, program, finding, script)
        with self.lock:
            self.log.settle(finding, examined)

    def try_again(self, worker: WorkerProcess, fault: Known | Earlier) -> None:
        """Run a fault's own program, unless the campaign has met it meanwhile."""
        if self.log.counts.get(fault.signature):
            return
        with self.lock:
            self.progress.phase(f"does {fault.path.name if isinstance(fault, Known) else fault.signature} still show?")
        deadline = min(time.monotonic(), self.deadline) + seconds_past_end(fault)
        worker.until = deadline + LAST_SECONDS
        patience = Patience(self.options.program_seconds, deadline, self.stop.is_set)
        answer = self.follow_up.run(worker, fault, patience)
        if answer is not None:
            with self.lock:
                self.follow_up.settle(answer)

    @property
    def elapsed_seconds(self) -> float:
        """Since the campaign began, the time when nothing ran not counted."""
        return time.monotonic() - self.started

    def blank_record(self, worker: WorkerProcess, program: Program, seed: int) -> Record:
        return blank_record(self.options, program, seed, self.version, self.elapsed_seconds, worker.options.number)

    def filled(self, blank: Record, trace: Trace) -> Record:
        return with_outcome(replace(blank, at=time.time(), elapsed_seconds=self.elapsed_seconds), trace)

    def give_up(self, reason: str) -> None:
        with self.lock:
            self.reason = self.reason or reason
            self.has_given_up = True
            self.progress.phase(reason)

    def result(self) -> CampaignResult:
        """Counts are known now: findings.jsonl is written for the last time."""
        self.log.write_findings()
        stand, later = self.follow_up.write(self.log.counts)
        if self.gaps is not None:
            self.gaps.write(self.options.out)
        ended = {"has_given_up": self.has_given_up, "interrupted": self.interrupted}
        return self.log.tally.result(self.options, stand, later, reason=self.reason, **ended)
