"""Known faults that a campaign did not meet: do they still show, each in its own saved program?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fuzz.confirm import Patience, Runner, shown_in
from fuzz.finding import Signature, Verdict
from fuzz.known import Known
from fuzz.process import Stopped, WorkerError
from fuzz.program import Program
from fuzz.salvage import Tell, lines_of
from fuzz.sealed import sealed, unsealed
from fuzz.store import write_whole
from fuzz.trace import Trace

KNOWN = "known.jsonl"
RUNS = 3  # in fresh processes: a fault that shows one time in two is missed by all of them one time in eight
MET, SHOWS, GONE, UNCLEAR, NOT_TRIED = "met", "shows", "gone", "unclear", "not tried"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a known fault stands. ``state``: met ``count`` times by the campaign, else what its own program said.

    shows, gone (clean in every run), unclear (``detail`` says why nothing can be told), or not tried for want of time.
    """

    signature: str
    script: str
    reason: str
    count: int
    state: str
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_standings(folder: Path, tell: Tell) -> dict[str, Standing]:
    """What an earlier run of the campaign found out."""
    standings = lines_of(folder / KNOWN, lambda line: Standing(**unsealed(line)), tell)
    return {standing.signature: standing for standing in standings}


def write_standings(folder: Path, standings: list[Standing]) -> None:
    text = "".join(sealed(standing.to_json()) + "\n" for standing in standings)
    write_whole(folder / KNOWN, text, durable=True)


def to_try(known: Mapping[str, Known], counts: Mapping[str, int], earlier: Mapping[str, Standing]) -> list[Known]:
    """Those that were not met and of which nothing is known yet."""
    settled = {one.signature for one in earlier.values() if one.state in (SHOWS, GONE, UNCLEAR)}
    return [one for signature, one in known.items() if not counts.get(signature) and signature not in settled]


def standings(known: Mapping[str, Known], counts: Mapping[str, int], answers: Mapping[str, Standing]) -> list[Standing]:
    """All of them, by script."""
    found = []
    for signature, one in sorted(known.items(), key=lambda item: item[1].path):
        count = counts.get(signature, 0)
        blank = Standing(signature, str(one.path), one.reason, count, MET if count else NOT_TRIED)
        found.append(blank if count else answers.get(signature, blank))
    return found


def run_afresh(runner: Runner, program: Program, patience: Patience) -> Trace | None:
    """One run in a fresh process; None when time is up or the worker is lost."""
    if patience.is_over:
        return None
    try:
        runner.renew()
        return runner.run(program, patience.program_seconds)
    except (Stopped, WorkerError):
        return None


def recheck(runner: Runner, known: Known, device: str, patience: Patience) -> Standing | None:
    """Run the saved program; None when time is up or the worker is lost."""
    blank = Standing(known.signature, str(known.path), known.reason, 0, UNCLEAR)
    if known.program.world.device != device:
        return replace(blank, detail=f"its program is one for device {known.program.world.device}")
    signature = Signature.parse(known.signature)
    for _ in range(RUNS):
        trace = run_afresh(runner, known.program, patience)
        if trace is None:
            return None
        if shown_in(trace, signature) is not None:
            return replace(blank, state=SHOWS)
        if trace.verdict is not Verdict.OK:
            other = trace.findings[0]
            return replace(blank, detail=" ".join(f"{trace.verdict.value}: {other.title}".split())[:300])
    return replace(blank, state=GONE)
