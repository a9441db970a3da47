"""What an earlier run found, and how it stands now: fixed is only what was run again, in its own program, and clean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fuzz.confirm import Patience, Runner, shown_in
from fuzz.finding import Signature, Verdict
from fuzz.interval import clean_runs_needed
from fuzz.program import Program, parse
from fuzz.recheck import run_afresh
from fuzz.salvage import Tell, lines_of
from fuzz.sealed import SealError, parsed, sealed, unsealed
from fuzz.store import FINDINGS, write_whole
from fuzz.terms import TERMS, Terms

SINCE = "since.jsonl"
# Of one program, in fresh processes. 3 clean ones exclude a fault that showed in 10 of 10, 12 one that showed in 5.
RUNS_MAX = 20
DETAIL_MAX = 300  # characters
MET, SHOWS, FIXED, UNCLEAR, NOT_RUN = "met", "shows", "fixed", "unclear", "not run again"
STATES = (MET, SHOWS, FIXED, UNCLEAR, NOT_RUN)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A fault that an earlier run found: ``program`` showed it in ``shown`` of ``runs`` runs then."""

    signature: str
    title: str
    pair: str
    script: str
    shown: int
    runs: int
    program: Program

    @property
    def clean_runs(self) -> int:
        """How many it takes to say that it is fixed. What nobody ran again then was seen in one run of one."""
        return clean_runs_needed(self.shown, self.runs) if self.runs else clean_runs_needed(1, 1)

    @property
    def then(self) -> str:
        return f"{self.shown} of {self.runs} runs" if self.runs else "the one run there was"


@dataclass(frozen=True, slots=True)
class Sequel:
    """How it stands now. ``state``: met ``count`` times by this run's programs, else what ``reruns`` of its own said.

    shows, fixed (clean in as many as that takes), unclear (``detail`` says why), or not run again, which tells nothing.
    """

    signature: str
    title: str
    pair: str
    script: str
    shown: int
    runs: int
    state: str
    count: int = 0
    reruns: int = 0
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def earlier_run(given: Path, out: Path, target: str) -> Path | None:
    """The out folder that ``given`` is, or the last in it by name of a run on ``target`` that comes before ``out``.

    None where there is no such run yet. Raises NotADirectoryError.
    """
    if _is_run(given):
        return given
    if not given.is_dir() and given.resolve() != out.resolve().parent:
        raise NotADirectoryError(
            f"{given} is no folder; expected an earlier run's --out folder, or one that holds such"
        )
    found = [folder for folder in given.glob("*/") if _target(folder) == target and folder.resolve() != out.resolve()]
    if out.resolve().parent == given.resolve():
        found = [folder for folder in found if folder.name < out.name]  # the same command goes on against the same run
    return max(found, key=lambda folder: folder.name, default=None)


def _is_run(folder: Path) -> bool:
    return (folder / FINDINGS).exists() or (folder / TERMS).exists()


def _target(folder: Path) -> str | None:
    try:
        return str(Terms.from_line((folder / TERMS).read_text(encoding="utf-8")).asked["target"])
    except (OSError, ValueError, KeyError):
        return None


def read_earlier(folder: Path | None, tell: Tell) -> list[Earlier]:
    """The faults of valid programs that a run found. Nothing in its ``folder`` is changed: what is spoiled is told."""
    path = folder / FINDINGS if folder is not None else None
    if path is None or not path.exists():
        return []
    found: dict[str, Earlier] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            earlier = _earlier(line.decode())
        except (ValueError, KeyError, TypeError) as error:
            tell(f"{path} line {number}: {error}; passed over")
            continue
        if earlier is not None:
            found[earlier.signature] = earlier
    return list(found.values())


def _earlier(line: str) -> Earlier | None:
    entry = unsealed(line) if "crc" in parsed(line) else parsed(line)
    signature = Signature.parse(entry["signature"])
    if entry["verdict"] != Verdict.BUG.value or entry.get("dismissed") or signature.is_corrupt:
        return None
    shown, runs = map(int, entry["reliability"])
    title, pair, script = (str(entry[name] or "") for name in ("title", "pair", "script"))
    return Earlier(str(signature), title, pair, script, shown, runs, parse(entry["program"]))


def read_sequels(folder: Path, tell: Tell) -> dict[str, Sequel]:
    """What this campaign found out before it was stopped."""
    sequels = lines_of(folder / SINCE, _sequel, tell)
    return {sequel.signature: sequel for sequel in sequels}


def _sequel(line: str) -> Sequel:
    try:
        return Sequel(**unsealed(line))
    except TypeError as error:
        raise SealError(f"lacks a field ({error})") from None


def write_sequels(folder: Path, sequels: Sequence[Sequel]) -> None:
    write_whole(folder / SINCE, "".join(sealed(sequel.to_json()) + "\n" for sequel in sequels), durable=True)


def to_rerun(earlier: Sequence[Earlier], counts: Mapping[str, int], answers: Mapping[str, Sequel]) -> list[Earlier]:
    """Those that were not met and of which nothing is known yet."""
    settled = {one.signature for one in answers.values() if one.state in (SHOWS, FIXED, UNCLEAR)}
    return [one for one in earlier if not counts.get(one.signature) and one.signature not in settled]


def sequels(earlier: Sequence[Earlier], counts: Mapping[str, int], answers: Mapping[str, Sequel]) -> list[Sequel]:
    """Of all of them, in the order in which they were found then."""
    found = []
    for one in earlier:
        count = counts.get(one.signature, 0)
        blank = _blank(one, MET if count else NOT_RUN)
        found.append(replace(blank, count=count) if count else answers.get(one.signature, blank))
    return found


def _blank(one: Earlier, state: str) -> Sequel:
    return Sequel(one.signature, one.title, one.pair, one.script, one.shown, one.runs, state)


def rerun(runner: Runner, one: Earlier, device: str, patience: Patience) -> Sequel | None:
    """Run its program until it shows or enough runs were clean; None when time is up or the worker is lost."""
    blank = _blank(one, UNCLEAR)
    if one.program.world.device != device:
        return replace(blank, detail=f"its program is one for device {one.program.world.device}")
    if one.runs and not one.shown:
        return replace(blank, detail=f"its program showed it in none of {one.runs} runs then, either")
    for number in range(1, min(one.clean_runs, RUNS_MAX) + 1):
        trace = run_afresh(runner, one.program, patience)
        if trace is None:
            return None
        if shown_in(trace, Signature.parse(one.signature)) is not None:
            return replace(blank, state=SHOWS, reruns=number)
        if trace.verdict is not Verdict.OK:
            other = " ".join(f"{trace.verdict.value}: {trace.findings[0].title}".split())
            return replace(blank, reruns=number, detail=other[:DETAIL_MAX])
    if one.clean_runs > RUNS_MAX:
        rare = f"clean in {RUNS_MAX} runs, which leaves it to chance: it showed in {one.then} then"
        return replace(blank, reruns=RUNS_MAX, detail=rare)
    return replace(blank, state=FIXED, reruns=one.clean_runs)
