"""Two targets driven in step: each program runs on both, and what differs is run again until chance is ruled out."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import replace

from fuzz.agenda import SEED_STRIDE
from fuzz.camp import Camp
from fuzz.campaign import SESSION_PROGRAMS_MAX
from fuzz.confirm import Patience, bugs
from fuzz.contrast import ContrastOptions, ContrastResult, in_order
from fuzz.generate import program_for
from fuzz.launch import WorkerOptions
from fuzz.limits import Limits
from fuzz.order import CampaignError, Progress
from fuzz.process import Ready, Stopped, WorkerError, WorkerProcess
from fuzz.program import Program
from fuzz.sighting import Judge, Sightings
from fuzz.store import Store, records_paths, write_whole
from fuzz.targets import open_target
from fuzz.worker import PAIRS, SPECULATIVE

JUDGE_SECONDS = 120  # past the campaign's end, to run again what differs: some 40 runs of each side for a few faults
BASELINE, TARGET = "baseline", "target"  # folders in --out
RESULT = "contrast.json"

Lane = tuple[WorkerProcess, WorkerProcess]  # on the baseline, on the target


def contrast(options: ContrastOptions, progress: Progress) -> ContrastResult:
    """Run it. Ctrl-C ends it early; what differs was then not run again, and is uncertain.

    Raises CampaignError for options that cannot be, TargetError for a target that cannot be had, StoreError where
    the out folder or the repros cannot be written. A target that does not import is an answer: exit status 3.
    """
    options.check()
    campaign, stop = options.campaign, threading.Event()
    with ExitStack() as stack:
        camps = []
        for name, spec in ((BASELINE, options.baseline), (TARGET, campaign.target)):
            progress.phase(f"getting {spec}")
            folder = stack.enter_context(open_target(spec)).folder
            store = stack.enter_context(closing(Store(campaign.out / name)))
            # A contrast is not resumed, and would be counted twice.
            for earlier in records_paths(store.folder):
                earlier.unlink()
            first = WorkerOptions(campaign.python, folder, store.folder, 0, campaign.device, campaign.executor)
            workers = [WorkerProcess(replace(first, number=number), stop) for number in range(campaign.workers)]
            for worker in workers:
                stack.callback(worker.close)
            camps.append(Camp(replace(campaign, target=spec), store, workers))
        result = _Lockstep(options, progress, (camps[0], camps[1]), stop).run()
    write_whole(campaign.out / RESULT, json.dumps(result.to_json(), indent=1) + "\n")
    return result


class _Lockstep:
    """The state that the lanes' threads share; ``lock`` guards all of it and the progress."""

    def __init__(
        self, options: ContrastOptions, progress: Progress, camps: tuple[Camp, Camp], stop: threading.Event
    ) -> None:
        self.options, self.progress, self.camps, self.stop = options, progress, camps, stop
        self.lanes: list[Lane] = list(zip(camps[0].workers, camps[1].workers, strict=True))
        self.lock = threading.Lock()
        self.sightings = Sightings()
        self.limits = Limits()
        self.pairs: tuple[str, ...] = ()
        self.pairs_apart: dict[str, str] = {}
        self.deadline = float("inf")
        self.next_index = self.done = 0
        self.interrupted = False
        self.reason = ""

    def run(self) -> ContrastResult:
        judge = Judge(self.options, self.lanes[0], self.progress.phase)
        try:
            if self.start():
                self.drive()
                judge.judge(self.sightings, self.patience(), self.camps[1].version)
        except KeyboardInterrupt:
            self.interrupted = True
        self.progress.phase("")
        before, after = self.camps
        return ContrastResult(
            baseline=self.options.baseline,
            target=self.options.campaign.target,
            versions=(before.version, after.version),
            differences=in_order([judge.answer(sighting) for sighting in self.sightings.by_signature.values()]),
            programs=self.done,
            steps=(before.tally.steps, after.tally.steps),
            verdicts=(dict(before.tally.verdicts), dict(after.tally.verdicts)),
            pairs=self.pairs,
            pairs_apart=self.pairs_apart,
            out=self.options.campaign.out,
            command=self.options.command,
            interrupted=self.interrupted,
            reason=self.reason or self.idle(),
        )

    def patience(self) -> Patience:
        return Patience(
            self.options.campaign.program_seconds, time.monotonic() + JUDGE_SECONDS, lambda: bool(self.reason)
        )

    def idle(self) -> str:
        """Why the programs that ran say nothing, if they do not."""
        idle = next((camp for camp in self.camps if not camp.tally.ran_something), None)
        return f"no program put {idle.options.target} to the test; see the records for why" if idle else ""

    def start(self) -> bool:
        """Import both targets side by side and agree on what both can run; False if that is nothing."""
        campaign = self.options.campaign
        self.progress.phase(f"importing {self.options.baseline} and {campaign.target}")
        try:
            for worker in (worker for lane in self.lanes for worker in lane):
                worker.launch()
            ready: list[Ready] = []
            for camp in self.camps:
                ready += [worker.wait_ready() for worker in camp.workers][:1]
                camp.version = ready[-1].sglang_version
            self.progress.phase("trying which pairs of backends start on both")
            self.agree()
        except WorkerError as error:
            self.reason = str(error)
            return False
        if self.pairs:
            self.progress.started(campaign, ready[1], self.pairs)
        else:
            self.reason = "no pair of backends can run on both targets here; `seamripper doctor` says why"
        seconds = campaign.seconds
        self.deadline = time.monotonic() + seconds if seconds is not None else float("inf")
        return bool(self.pairs)

    def agree(self) -> None:
        """The pairs, and the modes of verifying, that both targets have: programs are the same only within those."""
        answers: list[dict[str, str]] = [worker.ask(PAIRS) for worker in self.lanes[0]]
        chosen = [self.choose(answer) for answer in answers]
        self.pairs = tuple(pair for pair in chosen[1] if pair in chosen[0])
        for pair in dict.fromkeys((*chosen[0], *chosen[1])):
            if pair not in self.pairs:
                where = BASELINE if pair in chosen[0] else TARGET
                self.pairs_apart[pair] = f"runs on the {where} alone"
        if not self.pairs:
            return
        modes: list[dict[str, dict[str, int]]] = [worker.ask(SPECULATIVE, self.pairs) for worker in self.lanes[0]]
        self.limits = self.options.campaign.limits(self.pairs, _shared(*modes))
        for worker in self.lanes[0]:
            worker.renew()  # they have run programs to find that out

    def choose(self, answer: dict[str, str]) -> tuple[str, ...]:
        """The pairs that a target can run of those asked for; one that neither knows is the user's mistake."""
        campaign = self.options.campaign
        if not campaign.pairs:
            return campaign.choose(answer)
        chosen: list[str] = []
        for pair in campaign.pairs:
            try:
                chosen += replace(campaign, pairs=(pair,)).choose(answer)
            except CampaignError as error:
                self.pairs_apart[pair] = str(error)
        return tuple(chosen)

    def drive(self) -> None:
        """One thread a lane. The first error of ours stops all of them and is raised here."""
        with ThreadPoolExecutor(len(self.lanes)) as pool:
            try:
                pending = {pool.submit(self.work, lane) for lane in self.lanes}
                while pending:
                    done, pending = wait(pending, timeout=1, return_when=FIRST_EXCEPTION)
                    for future in done:
                        future.result()
            except BaseException:
                self.stop.set()  # on leaving, the pool waits for its threads
                raise

    def work(self, lane: Lane) -> None:
        """Run programs on both targets at a time until there are no more to run."""
        ran = 0
        with ThreadPoolExecutor(len(lane)) as pool:
            while (index := self.take()) is not None:
                if ran and ran % SESSION_PROGRAMS_MAX == 0:
                    for worker in lane:
                        worker.renew()
                seed = self.options.campaign.seed * SEED_STRIDE + index
                program = program_for(seed, self.limits)
                try:
                    self.run_one(pool, lane, program, seed)
                except Stopped:
                    return
                except WorkerError as error:
                    with self.lock:
                        self.reason = self.reason or str(error)
                    return
                ran += 1

    def run_one(self, pool: ThreadPoolExecutor, lane: Lane, program: Program, seed: int) -> None:
        runs = [pool.submit(camp.run, worker, program, seed) for camp, worker in zip(self.camps, lane, strict=True)]
        (_, before), (record, after) = (run.result() for run in runs)
        with self.lock:
            self.done += 1
            for news in self.sightings.note(program, (bugs(before), bugs(after))):
                self.progress.note(news)
            self.progress.program_done(record)

    def take(self) -> int | None:
        """The next program's index, or None when the budget is spent."""
        with self.lock:
            programs = self.options.campaign.programs
            enough = programs is not None and self.next_index >= programs
            if enough or self.reason or self.stop.is_set() or time.monotonic() >= self.deadline:
                return None
            self.next_index += 1
            return self.next_index - 1


def _shared(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Modes of verifying that a pair has on both sides, each with the fewer draft steps."""
    return {
        pair: {mode: min(steps, after[pair][mode]) for mode, steps in modes.items() if mode in after[pair]}
        for pair, modes in before.items()
    }
