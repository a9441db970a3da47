"""Faults seen by two targets that are driven in step, and what becomes of those that only one of them showed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz.confirm import Confirmed, Patience, confirm, confirm_real, shown_in
from fuzz.contrast import ContrastOptions, Difference
from fuzz.control import control, is_borderline
from fuzz.death import HANG
from fuzz.duel import Duel, Side, duel
from fuzz.examine import HANG_SECONDS
from fuzz.finding import Finding
from fuzz.process import Stopped, WorkerError, WorkerProcess
from fuzz.program import Program, ProgramError
from fuzz.repro import read_repro
from fuzz.script import Provenance, write_repro
from fuzz.shrink import StopShrinking, shrink
from fuzz.store import write_whole

SHRINK_SECONDS = 60  # for one new fault
BEFORE, AFTER = 0, 1  # the baseline's place in each pair, and the target's
SIDES = ("baseline", "target")


@dataclass(slots=True)
class Sighting:
    """One signature: how many programs showed it on the baseline and on the target, and the smallest by who showed it.

    ``alone`` maps BEFORE or AFTER to the smallest program that showed it there and not on the other.
    """

    finding: Finding
    program: Program
    programs: list[int] = field(default_factory=lambda: [0, 0])
    alone: dict[int, tuple[Program, Finding]] = field(default_factory=dict)


class Sightings:
    """By signature, in the order in which they came."""

    def __init__(self) -> None:
        self.by_signature: dict[str, Sighting] = {}

    def note(self, program: Program, found: tuple[Sequence[Finding], Sequence[Finding]]) -> list[str]:
        """Count what ``program`` showed on the baseline and on the target; a line for what one alone has shown."""
        news = []
        shown = [{str(finding.signature): finding for finding in reversed(findings)} for findings in found]
        for signature in {**shown[BEFORE], **shown[AFTER]}:
            by = [side for side in (BEFORE, AFTER) if signature in shown[side]]
            finding = shown[by[-1]][signature]
            if signature not in self.by_signature and len(by) == 1:
                news.append(f"{signature} shows on the {SIDES[by[0]]} alone, so far ({finding.mode})")
            sighting = self.by_signature.setdefault(signature, Sighting(finding, program))
            for side in by:
                sighting.programs[side] += 1
            if len(by) == 1 and (by[0] not in sighting.alone or program.cost < sighting.alone[by[0]][0].cost):
                sighting.alone[by[0]] = program, finding
            if program.cost < sighting.program.cost:
                sighting.finding, sighting.program = finding, program
        return news


class Judge:
    """Runs again what differs, on the workers of one lane, and saves a script of what is new."""

    def __init__(
        self, options: ContrastOptions, lane: tuple[WorkerProcess, WorkerProcess], tell: Callable[[str], None]
    ) -> None:
        self.options, self.lane, self.tell = options, lane, tell
        self.answers: dict[str, Difference] = {}

    def judge(self, sightings: Sightings, patience: Patience, version: str) -> None:
        """Those that may be new come first. Past the end of patience nothing is run again."""
        open_ones = [one for one in sightings.by_signature.values() if AFTER in one.alone or not one.programs[AFTER]]
        for sighting in sorted(open_ones, key=lambda one: (AFTER not in one.alone, one.finding.signature)):
            if patience.is_over:
                return
            try:
                self.answers[str(sighting.finding.signature)] = self.examine(sighting, patience, version)
            except (Stopped, WorkerError):
                return

    def answer(self, sighting: Sighting) -> Difference:
        """What was found out, or how it stands where nothing was run again."""
        known = self.answers.get(str(sighting.finding.signature))
        if known is not None:
            return known
        if AFTER not in sighting.alone and all(sighting.programs):
            return _difference(sighting, Duel("unchanged", Side(), Side(), _uneven(sighting)))
        notes = filter(None, (_uneven(sighting) if all(sighting.programs) else "", "no time was left to run it again"))
        return _difference(sighting, Duel("uncertain", Side(), Side(), "; ".join(notes)))

    def examine(self, sighting: Sighting, patience: Patience, version: str) -> Difference:
        side = AFTER if AFTER in sighting.alone else BEFORE
        program, finding = sighting.alone[side]
        patience = replace(patience, program_seconds=self.patience(finding).program_seconds)
        self.tell(f"running {finding.signature} again on both")
        fought = duel(*self.lane, program, finding, patience)
        if fought.state == "new":
            if is_borderline(finding):
                tried = control(self.lane[AFTER], program, finding, patience)
                if not tried.is_passed:
                    return _difference(
                        sighting, Duel("uncertain", fought.before, fought.after, tried.why_dismissed), program
                    )
            return self.settle(sighting, program, finding, fought, version)
        if all(sighting.programs):
            detail = fought.detail or _uneven(sighting)
            return _difference(sighting, Duel("unchanged", fought.before, fought.after, detail), program)
        return _difference(sighting, fought, program)

    def settle(self, sighting: Sighting, program: Program, finding: Finding, fought: Duel, version: str) -> Difference:
        """Shrink what is new to the smallest program that still tells the two targets apart, and save it."""
        if self.options.campaign.shrink:
            smaller = self.smallest(program, finding, self.patience(finding))
            again = duel(*self.lane, smaller, finding, self.patience(finding)) if smaller != program else fought
            if again.state == "new":
                program, fought = smaller, again
        patience = self.patience(finding)
        confirmed = confirm(self.lane[AFTER], program, finding, patience)
        confirmed = replace(confirmed, real=confirm_real(self.lane[AFTER], confirmed, patience))
        script = self.save(confirmed, version)
        if sighting.programs[BEFORE]:
            note = f"the baseline shows it too, in {sighting.programs[BEFORE]} other program(s)"
            fought = Duel(fought.state, fought.before, fought.after, "; ".join(filter(None, (fought.detail, note))))
        return _difference(sighting, fought, program, str(script))

    def patience(self, finding: Finding) -> Patience:
        seconds = self.options.campaign.program_seconds
        if finding.signature.kind == HANG:
            seconds = min(HANG_SECONDS, seconds)
        return Patience(seconds, time.monotonic() + SHRINK_SECONDS)

    def smallest(self, program: Program, finding: Finding, patience: Patience) -> Program:
        before, after = self.lane

        def tells_apart(candidate: Program) -> bool:
            if patience.is_over:
                raise StopShrinking
            seconds, signature = patience.program_seconds, finding.signature
            return (
                shown_in(after.run(candidate, seconds), signature) is not None
                and shown_in(before.run(candidate, seconds), signature) is None
            )

        self.tell(f"shrinking {finding.signature}")
        return shrink(program, tells_apart).program

    def save(self, confirmed: Confirmed, version: str) -> Path:
        """The script; beside another of that name, which shows the fault by another program, under a longer one."""
        campaign, program = self.options.campaign, confirmed.program
        path = campaign.repros / f"{confirmed.finding.signature.slug}.py"
        if path.exists() and not _holds(path, program):
            path = path.with_name(f"{path.stem}-{program.hash[:8]}.py")
        provenance = Provenance(
            found_on=campaign.target,
            seen_on=(campaign.target,),
            shown=confirmed.shown,
            runs=confirmed.runs,
            command=self.options.command,
            versions=f"sglang {version}",
            real=confirmed.real,
        )
        text = write_repro(program, confirmed.finding, confirmed.trace, provenance)
        write_whole(path, text)
        return path


def _difference(sighting: Sighting, fought: Duel, program: Program | None = None, script: str = "") -> Difference:
    finding = sighting.alone[AFTER][1] if AFTER in sighting.alone else sighting.finding
    world = (program or sighting.program).world
    return Difference(
        signature=str(finding.signature),
        title=" ".join(finding.title.split()),
        pair=f"{world.prefill}:{world.decode}",
        mode=finding.mode,
        programs=(sighting.programs[BEFORE], sighting.programs[AFTER]),
        duel=fought,
        program=(program or sighting.program).text,
        script=script,
    )


def _holds(path: Path, program: Program) -> bool:
    try:
        return read_repro(path).program == program
    except ProgramError:
        return False


def _uneven(sighting: Sighting) -> str:
    before, after = sighting.programs
    return "" if before == after else f"{before} program(s) showed it before, {after} now"
