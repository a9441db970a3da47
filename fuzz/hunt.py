"""Measures a campaign on known bugs: is each found where it is present, and not where it is fixed; after how long?

A bug is detected when a finding on ``present`` matches, and on ``fixed`` none does: not of that program, whole or
shrunk, and not of the programs that the campaign ran before it. One campaign a target and seed serves all bugs that are
present there: its programs would be the same for each.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz.audited import Audits
from fuzz.confirm import Confirmed, Patience, bugs, confirm, shown_in, smallest
from fuzz.finding import Finding, Verdict
from fuzz.hunted import BOTH, DETECTED, MISSED, UNCLEAR, Hunted, read_results
from fuzz.known_bugs import AUDIT, RUN, KnownBug
from fuzz.limits import Limits
from fuzz.looking import LONGEST_SECONDS
from fuzz.order import CampaignError
from fuzz.process import WorkerError
from fuzz.program import Program
from fuzz.proof import save_script
from fuzz.shrink import StopShrinking, shrink
from fuzz.store import make_folder
from fuzz.targets import TargetError
from fuzz.trail import PROGRAM_SECONDS, Seen, Side, Trail
from fuzz.worker import EXECUTOR

RESULTS = "bugs.jsonl"
DETAIL_MAX = 300  # characters: some four titles
UNTOLD = (Verdict.INFRA, Verdict.STUB_GAP)  # of a run that says nothing of SGLang

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class HuntOptions:
    """``seconds`` of running programs for each target and seed; ``seeds`` counts from 0."""

    bugs: tuple[KnownBug, ...]
    out: Path
    python: str
    seconds: float = 120.0
    seeds: int = 1
    pairs: tuple[str, ...] = ()
    repros: Path | None = None
    workers: int = 1
    executor: str = EXECUTOR
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def asked(self) -> list[tuple[KnownBug, int]]:
        """Each bug with each seed; the audit has none and is asked once."""
        return [(bug, seed) for bug in self.bugs for seed in range(self.seeds if bug.by == RUN else 1)]


def hunt(options: HuntOptions, say: Say) -> list[Hunted]:
    """Results in the list's order; written down as they come, and a hunt begun in the same folder is taken up again.

    A target that cannot be had or run makes its bugs unclear. Raises StoreError.
    """
    make_folder(options.out)
    ledger = _Ledger(options, say)
    audits = Audits(options.repros, options.python)
    for bug, seed in ledger.open(AUDIT):
        say(f"reading {bug.present} and {bug.fixed}")
        ledger.note(replace(audits.look(bug), seed=seed, budget_seconds=options.seconds))
    parties = [_Party(options, ledger, target, say) for target in dict.fromkeys(b.present for b, _ in ledger.open(RUN))]
    with ThreadPoolExecutor(options.workers) as pool:
        try:
            for future in as_completed([pool.submit(party.run) for party in parties]):
                future.result()
        finally:
            options.stop.set()  # on leaving, the pool waits for its threads
            pool.shutdown(wait=True, cancel_futures=True)
    return [ledger.done[bug.id, seed] for bug, seed in options.asked]


class _Ledger:
    """What is known of each bug and seed, on disk as soon as it is known."""

    def __init__(self, options: HuntOptions, say: Say) -> None:
        self.options, self._say, self._lock = options, say, threading.Lock()
        asked = {(bug, seed, options.seconds) for bug, seed in options.asked}
        earlier = (r for r in read_results(options.out / RESULTS) if (r.bug, r.seed, r.budget_seconds) in asked)
        self.done = {(result.bug.id, result.seed): result for result in earlier}

    def open(self, by: str) -> list[tuple[KnownBug, int]]:
        return [(bug, seed) for bug, seed in self.options.asked if bug.by == by and (bug.id, seed) not in self.done]

    def note(self, result: Hunted) -> None:
        with self._lock:
            self.done[result.bug.id, result.seed] = result
            with (self.options.out / RESULTS).open("a") as file:
                file.write(json.dumps(result.to_json()) + "\n")
            detected = sum(known.state == DETECTED for known in self.done.values())
            self._say(
                f"{result.bug.id}, seed {result.seed}: {result.state}; "
                f"{len(self.done)} of {len(self.options.asked)} looked for, {detected} detected"
            )


class _Party:
    """All bugs that are present on one target."""

    def __init__(self, options: HuntOptions, ledger: _Ledger, target: str, say: Say) -> None:
        self.options, self.ledger, self.target, self.say = options, ledger, target, say
        self.sides: dict[str, Side] = {}
        self.trails: dict[tuple[str, int], Trail] = {}
        self.limits: Limits | None = None

    def run(self) -> None:
        for seed in range(self.options.seeds):
            wanted = [bug for bug, at in self.ledger.open(RUN) if (bug.present, at) == (self.target, seed)]
            try:
                if wanted:
                    self.campaign(seed, wanted)
            except (TargetError, WorkerError, CampaignError) as error:
                rest = [bug for bug, at in self.ledger.open(RUN) if (bug.present, at) == (self.target, seed)]
                self.give_up(rest, seed, str(error))
        for side in self.sides.values():
            side.close()

    def give_up(self, wanted: Iterable[KnownBug], seed: int, reason: str) -> None:
        for bug in wanted:
            self.ledger.note(Hunted(bug, seed, self.options.seconds, UNCLEAR, detail=reason))

    def campaign(self, seed: int, wanted: list[KnownBug]) -> None:
        self.say(f"{self.target}, seed {seed}: {len(wanted)} bug(s)")
        trail, index, titles = self.trail(self.target, seed), 0, dict[str, None]()
        while wanted and trail.seconds < self.options.seconds:
            seen = trail.at(index)
            index += 1
            titles |= dict.fromkeys(finding.title for finding in seen.findings)
            for bug in [bug for bug in wanted if _matching(bug, seen.findings, seen.program)]:
                wanted.remove(bug)
                try:
                    self.ledger.note(self.look_into(bug, seed, index, seen))
                except (TargetError, WorkerError) as error:  # of the target where it is fixed
                    self.give_up([bug], seed, str(error))
        others = f"none of {len(titles)} other faults matches: {'; '.join(titles)}" if titles else "no fault was seen"
        seconds = round(trail.seconds, 1)
        for bug in wanted:
            missed = Hunted(bug, seed, self.options.seconds, MISSED, detail=others[:DETAIL_MAX])
            self.ledger.note(replace(missed, programs=index, seconds=seconds))

    def look_into(self, bug: KnownBug, seed: int, programs: int, seen: Seen) -> Hunted:
        """A match on present: confirmed and shrunk there, then sought on fixed."""
        finding = _matching(bug, seen.findings, seen.program)
        assert finding is not None
        here = self.side(self.target)
        patience = Patience(PROGRAM_SECONDS, time.monotonic() + LONGEST_SECONDS, self.options.stop.is_set)
        confirmed = confirm(here.worker, seen.program, finding, patience)
        if confirmed.shown:
            small = smallest(here.worker, confirmed, patience)
            confirmed = small if _matching(bug, (small.finding,), small.program) else confirmed
        state, detail = self.on_fixed(bug, seed, programs, (confirmed.program, seen.program))
        if not confirmed.shown:
            state, detail = UNCLEAR, "it did not show again in a fresh process"
        elif state == DETECTED and detail:
            gone = self.gone_on_fixed(bug, confirmed)
            confirmed, detail = (confirmed, detail) if gone is None else (gone, "")
        result = Hunted(
            bug,
            seed,
            self.options.seconds,
            state,
            oracle=finding.signature.oracle,
            signature=str(finding.signature),
            title=finding.title,
            programs=programs,
            seconds=round(seen.seconds, 1),
            ops=len(confirmed.program.ops),
            detail=detail,
        )
        if state == DETECTED and self.options.repros is not None:
            script, exits = save_script(self.options.repros, bug, confirmed, here.version, self.options.python)
            result = replace(result, script=str(script), exits=exits)
        return result

    def on_fixed(self, bug: KnownBug, seed: int, programs: int, shown: tuple[Program, Program]) -> tuple[str, str]:
        """(state, detail): the program there, shrunk and whole, then an equal campaign."""
        there, trail = self.side(bug.fixed), self.trail(bug.fixed, seed)
        traces = {program: there.worker.run(program, PROGRAM_SECONDS) for program in dict.fromkeys(shown)}
        matches = (_matching(bug, bugs(trace), program) for program, trace in traces.items())
        found = next((match for match in matches if match), None)
        index = 0
        while found is None and index < programs and trail.seconds < self.options.seconds:
            seen = trail.at(index)
            found = _matching(bug, seen.findings, seen.program)
            index += 1
        there.rest()
        if found is not None:
            return BOTH, f"{bug.fixed} shows it, too: {found.title}"
        shrunk = traces[shown[0]]
        told = shrunk.steps or not shown[0].ops  # a fault at start-up needs no step
        other = next((finding.title for finding in shrunk.findings), "" if told else "no step was run")
        if shrunk.verdict in UNTOLD or not told and not shrunk.findings:
            return UNCLEAR, f"{bug.fixed} does not come to the end of it: {other}"
        return DETECTED, f"{bug.fixed} has another answer to it: {other}" if other else ""

    def gone_on_fixed(self, bug: KnownBug, confirmed: Confirmed) -> Confirmed | None:
        """A simpler program that shows the bug here and nothing at all there, where ``confirmed``'s shows something else."""
        here, there = self.side(self.target), self.side(bug.fixed)
        patience = Patience(PROGRAM_SECONDS, time.monotonic() + LONGEST_SECONDS, self.options.stop.is_set)

        def shows(program: Program) -> bool:
            if patience.is_over:
                raise StopShrinking
            if there.worker.run(program, PROGRAM_SECONDS).verdict is not Verdict.OK:
                return False
            finding = shown_in(here.worker.run(program, PROGRAM_SECONDS), confirmed.finding.signature)
            return finding is not None and _matching(bug, (finding,), program) is not None

        program = shrink(confirmed.program, shows).program
        there.rest()
        if program == confirmed.program:
            return None
        again = confirm(here.worker, program, confirmed.finding, patience)
        return again if again.shown == again.runs else None

    def side(self, target: str) -> Side:
        if target not in self.sides:
            number = len(list(self.options.out.glob("side-*")))
            out = self.options.out / f"side-{number:02}"
            self.sides[target] = Side(target, out, self.options.python, self.options.executor, self.options.stop)
        self.sides[target].start()
        return self.sides[target]

    def trail(self, target: str, seed: int) -> Trail:
        """The programs that present draws, on either target: what it runs decides which there are."""
        if (target, seed) not in self.trails:
            self.limits = self.limits or self.side(self.target).limits(self.options.pairs)
            self.trails[target, seed] = Trail(self.side(target), self.limits, seed)
        return self.trails[target, seed]


def _matching(bug: KnownBug, findings: Iterable[Finding], program: Program) -> Finding | None:
    said = ((finding, " ".join(f"{finding.title}: {finding.message}".split())) for finding in findings)
    return next((finding for finding, text in said if bug.matches(text, program.text)), None)
