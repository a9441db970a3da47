"""Takes up a campaign where it stopped: what its out folder says of programs run, findings made, and work cut off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.finding import Signature
from fuzz.record import Record
from fuzz.salvage import Tell, lines_of, whole_of
from fuzz.sealed import sealed, unsealed
from fuzz.store import FINDINGS, append, records_path, records_paths, write_whole
from fuzz.terms import TERMS, Terms

LOST = "lost.jsonl"
LOSSES_MAX = 3  # times that everything may end over one program before it is believed to be that program's doing


@dataclass(frozen=True, slots=True)
class Leftover:
    """A program under way when everything was killed; ``record`` is what to write for it if it is given up."""

    record: Record
    program: str


@dataclass(frozen=True, slots=True)
class Past:
    """``entries`` are the findings', ``given_up`` the programs that are not tried again."""

    records: list[Record] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    given_up: list[Leftover] = field(default_factory=list)
    terms: Terms | None = None

    @property
    def elapsed_seconds(self) -> float:
        return max((record.elapsed_seconds for record in self.records), default=0.0)

    @property
    def seeds(self) -> set[int]:
        """Of programs that are not to run again."""
        return {record.seed for record in (*self.records, *(leftover.record for leftover in self.given_up))}


def read_past(folder: Path, tell: Tell) -> Past:
    """What is in ``folder``. What is spoiled is set aside and told; the programs that it stood for will run again.

    Raises StoreError where that cannot be written down.
    """
    terms = whole_of(folder / TERMS, Terms.from_line, tell)
    entries = {entry["signature"]: entry for entry in lines_of(folder / FINDINGS, _entry, tell)}
    records: dict[int, Record] = {}
    for path in records_paths(folder):
        for record in lines_of(path, _once(records), tell):
            records[record.seed] = record
    for record in _orphans(list(records.values()), set(entries)):
        tell(f"{folder / FINDINGS} lacks a finding of program {record.seed}, which runs again")
        del records[record.seed]
        _forget(records_path(folder, record.worker), record)
    given_up = _leftovers(folder, set(records), tell)
    return Past(list(records.values()), list(entries.values()), given_up, terms)


def _entry(line: str) -> dict[str, Any]:
    entry = unsealed(line)
    Signature.parse(entry["signature"])
    return entry


def _once(earlier: dict[int, Record]) -> Callable[[str], Record]:
    """Read a record; ValueError for a seed that there was already."""
    seeds = set(earlier)

    def parse(line: str) -> Record:
        record = Record.from_line(line)
        if record.seed in seeds:
            raise ValueError(f"a second record of program {record.seed}")
        seeds.add(record.seed)
        return record

    return parse


def _orphans(records: list[Record], found: set[str]) -> list[Record]:
    """Of each signature that has records and no entry, the first record: its program makes the entry anew."""
    orphans: dict[int, Record] = {}
    for record in sorted(records, key=lambda record: record.elapsed_seconds):
        if not set(record.signatures) <= found:
            found = found | set(record.signatures)
            orphans[record.seed] = record
    return list(orphans.values())


def _forget(path: Path, record: Record) -> None:
    lines = [line for line in path.read_text().splitlines() if Record.from_line(line).seed != record.seed]
    write_whole(path, "".join(f"{line}\n" for line in lines), durable=True)


def _leftovers(folder: Path, done: set[int], tell: Tell) -> list[Leftover]:
    """Empty the journals. A program that was under way once or twice runs again; after that it is given up."""
    lost = Counter(lines_of(folder / LOST, _lost_seed, tell))
    given_up: list[Leftover] = []
    for path in sorted(folder.glob("journal-*.json")):
        leftover = whole_of(path, _journaled, tell) if path.stat().st_size else None
        if leftover is not None and leftover.record.seed not in done:
            seed = leftover.record.seed
            if lost[seed] + 1 >= LOSSES_MAX:
                given_up.append(leftover)  # its journal stays until its record is written
                continue
            append(folder / LOST, [sealed({"seed": seed, "program": leftover.record.program})])
        path.unlink(missing_ok=True)
    return given_up


def _lost_seed(line: str) -> int:
    return int(unsealed(line)["seed"])


def _journaled(text: str) -> Leftover:
    data = unsealed(text)
    return Leftover(Record.from_line(data["record"]), str(data["program"]))
