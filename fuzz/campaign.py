"""A campaign: workers run one generated program after the other until the budget is spent, and every finding is kept."""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fuzz.confirm import Confirmed, Patience, confirm, smallest
from fuzz.death import HANG
from fuzz.finding import Finding, Signature, Verdict
from fuzz.generate import Limits, program_for
from fuzz.launch import WorkerOptions
from fuzz.memory import limit_mb
from fuzz.order import CampaignError, CampaignOptions, CampaignResult, Progress
from fuzz.outcome import not_run, noteworthy, with_outcome
from fuzz.process import Stopped, WorkerError, WorkerProcess
from fuzz.program import Program, ProgramError
from fuzz.record import Record
from fuzz.repro import known_signatures
from fuzz.script import Provenance, write_repro
from fuzz.store import Store, write_whole
from fuzz.tally import Tally
from fuzz.targets import open_target
from fuzz.trace import Trace
from fuzz.worker import PAIRS, SPECULATIVE

__all__ = ["CampaignError", "CampaignOptions", "CampaignResult", "Progress", "run_campaign"]

SEED_STRIDE = 1_000_003  # a prime above any campaign's number of programs, so that seeds do not share programs
SESSION_PROGRAMS_MAX = 500  # then a fresh process: whatever a target leaks stays bounded
HANG_SECONDS = 20  # for a program that hung before, to be believed that it hangs again
LAST_SECONDS = 10  # for what is under way when time is up; programs take a second or two
EXAMINE_SECONDS = 60  # to confirm and shrink one finding; past the campaign's end, for all of them together


def run_campaign(options: CampaignOptions, progress: Progress) -> CampaignResult:
    """Run it. Ctrl-C ends it early and loses nothing.

    Raises CampaignError for options that cannot be, TargetError for a target that cannot be had, StoreError where
    the out folder or the repros cannot be written.
    """
    options.check()
    try:
        known = known_signatures(options.known) if options.known is not None else frozenset()
    except ProgramError as error:
        raise CampaignError(f"known: {error}") from None
    progress.phase(f"getting {options.target}")
    with open_target(options.target) as target, closing(Store(options.out)) as store:
        campaign = _Campaign(options, progress, store, known)
        campaign.recover()
        result = campaign.run(target.folder)
    progress.finished(result)
    return result


class _Campaign:
    """The state that the workers' threads share; ``lock`` guards all of it, the store and the progress."""

    def __init__(self, options: CampaignOptions, progress: Progress, store: Store, known: frozenset[str]) -> None:
        self.options, self.progress, self.store = options, progress, store
        self.started = time.monotonic()
        self.deadline = self.started + options.seconds if options.seconds is not None else float("inf")
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.interrupted = False
        self.reason = ""
        self.tally = Tally(known, findings={entry["signature"]: entry for entry in store.findings()})
        self.next_index = 0
        self.version = ""
        self.limits = Limits()

    def recover(self) -> None:
        """Write down what an earlier campaign in this folder was running when it was killed."""
        for leftover in self.store.leftovers():
            record = leftover.record
            signature = Signature.parse(record.signature)
            finding = Finding(Verdict.INFRA, signature, record.title, record.reason, 0, "unknown")
            self.note(finding, record, leftover.program)
            self.store.end(record)

    def run(self, folder: Path | None) -> CampaignResult:
        options = self.options
        memory_mb = options.memory_mb or limit_mb(options.device, options.workers)
        first = WorkerOptions(options.python, folder, options.out, 0, options.device, options.executor, memory_mb)
        workers = [WorkerProcess(replace(first, number=number), self.stop) for number in range(options.workers)]
        try:
            if self.start(workers):
                self.drive(workers)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            for worker in workers:
                worker.close()
        return self.result()

    def start(self, workers: list[WorkerProcess]) -> bool:
        """Start all workers side by side; False if the target or every pair is out of reach."""
        self.progress.phase(f"importing {self.options.target} in {len(workers)} worker(s)")
        try:
            for worker in workers:
                worker.launch()
            ready, *_ = [worker.wait_ready() for worker in workers]
            self.progress.phase("trying which pairs of backends start")
            ready = replace(ready, pairs=workers[0].ask(PAIRS))
            pairs = self.options.choose(ready.pairs)
            if not pairs:
                self.give_up("no pair of backends can run on this target here; `seamripper doctor` says why")
                return False
            speculative = workers[0].ask(SPECULATIVE, pairs)
            workers[0].renew()  # it has run programs to find that out
        except WorkerError as error:
            self.give_up(str(error))
            return False
        self.version = ready.sglang_version
        self.limits = self.options.limits(pairs, speculative)
        self.progress.started(self.options, ready, pairs)
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
        """Run programs until there are no more to run."""
        ran = 0
        while (index := self.take()) is not None:
            if ran == SESSION_PROGRAMS_MAX:
                worker.renew()
                ran = 0
            seed = self.options.seed * SEED_STRIDE + index
            try:
                self.run_one(worker, program_for(seed, self.limits), seed)
            except Stopped:
                return
            except WorkerError as error:
                self.give_up(str(error))
                return
            ran += 1

    def take(self) -> int | None:
        """The next program's index, or None when the budget is spent."""
        with self.lock:
            enough = self.options.programs is not None and self.next_index >= self.options.programs
            if enough or self.stop.is_set() or time.monotonic() >= self.deadline:
                return None
            self.next_index += 1
            return self.next_index - 1

    def run_one(self, worker: WorkerProcess, program: Program, seed: int) -> None:
        """Run it, write its record, look into what it found."""
        text = program.text
        blank = self.blank_record(worker, program, seed)
        lost = with_outcome(blank, not_run("the campaign ended while this program ran"))
        with self.lock:
            self.store.begin(lost, text)
        worker.until = self.deadline + LAST_SECONDS
        try:
            trace = worker.run(program, self.options.program_seconds)
        except Stopped:
            self.keep(replace(lost, at=time.time(), elapsed_seconds=self.elapsed_seconds), text, [])
            raise
        except WorkerError as error:
            trace = not_run(str(error))
            self.keep(self.filled(blank, trace), text, noteworthy(trace))
            raise
        for finding in self.keep(self.filled(blank, trace), text, noteworthy(trace)):
            self.examine(worker, program, finding)

    def keep(self, record: Record, program: str, findings: list[Finding]) -> list[Finding]:
        """Put the record on disk and count what was found; returns the bugs to be looked into."""
        with self.lock:
            self.tally.count_program(record)
            fresh = [finding for finding in findings if self.note(finding, record, program)]
            self.store.end(record)
            self.progress.program_done(record)
        return fresh

    def note(self, finding: Finding, record: Record, program: str) -> bool:
        """Count a finding and write it down if it is new; whether it is a new bug."""
        entry = self.tally.count_finding(finding, record, program)
        if entry is None:
            return False
        self.store.write_findings(list(self.tally.findings.values()))
        if finding.verdict is Verdict.BUG and not entry["known"]:
            return True
        self.progress.finding(entry)
        return False

    def examine(self, worker: WorkerProcess, program: Program, finding: Finding) -> None:
        """Confirm and shrink, then save the script; after a stop, what there is."""
        with self.lock:
            self.progress.phase(f"confirming and shrinking {finding.signature}")
        confirmed = Confirmed(program, finding, shown=0, runs=0)
        script = self.options.repros / f"{finding.signature.slug}.py"
        seconds = HANG_SECONDS if finding.signature.kind == HANG else self.options.program_seconds
        deadline = min(time.monotonic(), self.deadline) + EXAMINE_SECONDS
        worker.until = deadline + LAST_SECONDS
        patience = Patience(min(seconds, self.options.program_seconds), deadline, self.stop.is_set)
        try:
            confirmed = confirm(worker, program, finding, patience)
            if self.options.shrink and confirmed.shown and not script.exists():
                confirmed = smallest(worker, confirmed, patience)
        except (Stopped, WorkerError):
            pass  # the finding is saved as it stands, and the worker's next program meets the same trouble
        with self.lock:
            entry = self.tally.findings[str(finding.signature)]
            entry.update(confirmed.finding.to_json())
            entry.update(program=confirmed.program.text, program_hash=confirmed.program.hash)
            entry.update(reliability=[confirmed.shown, confirmed.runs], shrunk_ops=len(confirmed.program.ops))
            if (
                confirmed.shown or not confirmed.runs
            ):  # one that never showed again would be a script that shows nothing
                entry["script"] = self.save_script(script, confirmed)
            self.store.write_findings(list(self.tally.findings.values()))
            self.progress.finding(entry)

    def save_script(self, path: Path, confirmed: Confirmed) -> str:
        """Write the repro unless one of that name is there; its path.

        Where no standalone script can show the finding, the file holds its program, which replays as well.
        """
        if path.exists():
            return str(path)
        provenance = Provenance(
            found_on=self.options.target,
            seen_on=(self.options.target,),
            shown=confirmed.shown,
            runs=confirmed.runs,
            command=self.options.command,
            versions=f"sglang {self.version}",
        )
        text, _ = write_repro(confirmed.program, confirmed.finding, confirmed.trace, provenance)
        write_whole(path, text)
        return str(path)

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self.started

    def blank_record(self, worker: WorkerProcess, program: Program, seed: int) -> Record:
        """The record of a program that has yet to run."""
        world = program.world
        return Record(
            at=time.time(),
            elapsed_seconds=self.elapsed_seconds,
            seed=seed,
            program=program.hash,
            ops=len(program.ops),
            verdict="",
            signature="",
            title="",
            reason="",
            seconds=0.0,
            steps=(),
            target=self.options.target,
            sglang_version=self.version,
            device=world.device,
            runner=world.runner,
            prefill=world.prefill,
            decode=world.decode,
            engine=self.options.engine,
            worker=worker.options.number,
        )

    def filled(self, blank: Record, trace: Trace) -> Record:
        return with_outcome(replace(blank, at=time.time(), elapsed_seconds=self.elapsed_seconds), trace)

    def give_up(self, reason: str) -> None:
        with self.lock:
            self.reason = self.reason or reason
            self.progress.phase(reason)

    def result(self) -> CampaignResult:
        """Counts are known now: findings.jsonl is written for the last time."""
        tally = self.tally
        self.store.write_findings(list(tally.findings.values()))
        findings = [entry for signature, entry in tally.findings.items() if signature in tally.seen]
        if not tally.ran_something and not self.reason:
            self.reason = "no program put the target to the test; see the records for why, or give it more time"
        return CampaignResult(
            findings=findings,
            programs=tally.programs,
            steps=tally.steps,
            exit_code=1 if tally.new_bugs else 0 if tally.ran_something else 3,
            out=self.options.out,
            scripts=tuple(Path(entry["script"]) for entry in findings if entry["script"]),
            interrupted=self.interrupted,
            reason=self.reason,
        )
