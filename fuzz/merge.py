"""Puts the out folders of a campaign's shards together, by content: one folder, as one campaign leaves it.

The same record, cell or finding of two shards is one. Nothing of a shard's own folder is changed: it goes on from
there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.cells import Cell
from fuzz.gaps import Place, read_cells, write_cells
from fuzz.known import Known
from fuzz.order import CampaignOptions
from fuzz.program import ProgramError, parse
from fuzz.recheck import GONE, NOT_TRIED, SHOWS, UNCLEAR, Standing, read_standings, standings, write_standings
from fuzz.record import Record
from fuzz.repro import read_repro
from fuzz.resume import Past, read_past
from fuzz.salvage import Tell
from fuzz.sealed import sealed
from fuzz.since import NOT_RUN, Sequel, read_earlier, read_sequels, sequels, write_sequels
from fuzz.store import FINDINGS, records_path, write_whole
from fuzz.tally import Tally
from fuzz.terms import TERMS, asked

_SAYS_MORE = (SHOWS, GONE, UNCLEAR, NOT_TRIED)  # what one shard says of a known fault, before what others do


def merge(
    options: CampaignOptions, parts: Sequence[Path], known: Mapping[str, Known], tell: Tell
) -> tuple[Tally, list[Standing]]:
    """Write the files of ``options.out`` from those of ``parts``, the shards' folders in order; what they hold.

    Raises StoreError.
    """
    pasts = [read_past(part, tell) for part in parts]
    tally = Tally({signature: one.reason for signature, one in known.items()})
    records = _records(pasts)
    tally.count_earlier(records, _entries(pasts, records))
    for number in range(len(parts)):
        lines = "".join(record.to_line() + "\n" for record in records if record.worker == number)
        write_whole(records_path(options.out, number), lines, durable=True)
    entries = "".join(sealed(entry) + "\n" for entry in tally.findings.values())
    write_whole(options.out / FINDINGS, entries, durable=True)
    terms = next((past.terms for past in pasts if past.terms is not None), None)
    if terms is not None:
        write_whole(options.out / TERMS, replace(terms, asked=asked(options)).to_line() + "\n", durable=True)
    write_cells(options.out, _cells(parts, tally, tell))
    counts = {signature: entry["count"] for signature, entry in tally.findings.items()}
    stand = standings(known, counts, _standings(parts, tell))
    if stand:
        write_standings(options.out, stand)
    later = sequels(read_earlier(options.since, tell), counts, _sequels(parts, tell))
    if later:
        write_sequels(options.out, later)
    return tally, stand


def _records(pasts: Sequence[Past]) -> list[Record]:
    """Each program's once, by when it ended; ``worker`` is the shard's number."""
    found: dict[int, Record] = {}
    for number, past in enumerate(pasts):
        for record in past.records:
            found.setdefault(record.seed, replace(record, worker=number))
    return sorted(found.values(), key=lambda record: (record.elapsed_seconds, record.seed))


def _entries(pasts: Sequence[Past], records: Sequence[Record]) -> list[dict[str, Any]]:
    """One of each signature, by when it was first seen: that which was looked into best, with the smallest program."""
    by_signature: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for past in pasts:
        for entry in past.entries:
            by_signature[entry["signature"]].append(entry)
    found = []
    for entries in by_signature.values():
        first = min(entry["first_seconds"] for entry in entries)
        before = sum(record.elapsed_seconds <= first for record in records)
        best = min(entries, key=_rank)
        found.append({**best, "first_seconds": first, "first_programs": max(before, 1)})
    return sorted(found, key=lambda entry: (entry["first_seconds"], entry["signature"]))


def _rank(entry: dict[str, Any]) -> tuple[Any, ...]:
    shown, runs = entry["reliability"]
    doubts = bool(entry.get("dismissed")), not entry["examined"], -shown / max(runs, 1), not _is_saved(entry)
    return (*doubts, parse(entry["program"]).cost)


def _is_saved(entry: Mapping[str, Any]) -> bool:
    """Whether its script holds its program: shards that found a fault at the same time wrote one script by turns."""
    try:
        return bool(entry["script"]) and read_repro(Path(entry["script"])).program.text == entry["program"]
    except ProgramError:
        return False


def _cells(parts: Sequence[Path], tally: Tally, tell: Tell) -> dict[Place, Cell]:
    """Those in which no shard's program ran, each with the first reason that a shard has."""
    found: dict[Place, Cell] = {}
    for part in parts:
        for place, cell in read_cells(part, tell).items():
            if place not in tally.reached and not (place in found and found[place].state):
                found[place] = cell
    return found


def _standings(parts: Sequence[Path], tell: Tell) -> dict[str, Standing]:
    """Of each known fault what the shard says that tried it."""
    found: dict[str, Standing] = {}
    for part in parts:
        for signature, standing in read_standings(part, tell).items():
            told = found.get(signature)
            if standing.state in _SAYS_MORE and (
                told is None or _SAYS_MORE.index(standing.state) < _SAYS_MORE.index(told.state)
            ):
                found[signature] = standing
    return found


def _sequels(parts: Sequence[Path], tell: Tell) -> dict[str, Sequel]:
    """Of each fault of an earlier run what the shard says that ran its program again."""
    told = (sequel for part in parts for sequel in read_sequels(part, tell).values())
    return {sequel.signature: sequel for sequel in told if sequel.state != NOT_RUN}
