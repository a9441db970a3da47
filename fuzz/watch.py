"""Tells what the shards of a campaign come to while they run, from what they write into their folders."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.finding import Verdict
from fuzz.order import CampaignOptions, Progress
from fuzz.process import Ready
from fuzz.record import Record, RecordError
from fuzz.sealed import SealError, unsealed
from fuzz.store import FINDINGS, records_path
from fuzz.terms import TERMS, Terms


class Watch:
    """``look`` tells what is new since the last look. What is half written is read the next time."""

    def __init__(self, options: CampaignOptions, parts: Sequence[Path], progress: Progress) -> None:
        self._options, self._parts, self._progress = options, parts, progress
        self._began = time.monotonic()
        self._has_started = False
        self._read = {part: _size(_records(part)) for part in parts}
        self._told = {entry["signature"] for part in parts for entry in _entries(part)}

    def look(self) -> None:
        self._look_for_start()
        if not self._has_started:
            return
        for number, part in enumerate(self._parts):
            for record in self._news(part):
                self._progress.program_done(replace(record, worker=number))
            for entry in _entries(part):
                is_looked_into = entry["examined"] or entry["known"] or entry["verdict"] != Verdict.BUG.value
                if is_looked_into and entry["signature"] not in self._told:
                    self._told.add(entry["signature"])
                    self._progress.finding(entry)

    def _look_for_start(self) -> None:
        """The first shard that knows its pairs tells them for all."""
        if self._has_started:
            return
        terms = next(filter(None, map(_terms, self._parts)), None)
        if terms is not None:
            self._has_started = True
            ready = Ready(terms.sglang_version, {}, time.monotonic() - self._began)
            self._progress.started(self._options, ready, terms.pairs)

    def _news(self, part: Path) -> Iterator[Record]:
        """Records that ended since the last look."""
        path = _records(part)
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read[part])
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read[part] += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            try:
                yield Record.from_line(line)
            except RecordError:
                continue  # the shard sets it aside when it goes on, and runs the program again


def _records(part: Path) -> Path:
    return records_path(part, 0)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _terms(part: Path) -> Terms | None:
    try:
        return Terms.from_line((part / TERMS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _entries(part: Path) -> list[dict[str, Any]]:
    try:
        return [unsealed(line) for line in (part / FINDINGS).read_text(encoding="utf-8").splitlines()]
    except (OSError, SealError):
        return []
