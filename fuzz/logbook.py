"""A campaign's logbook: each program and each finding is counted, put on disk and told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fuzz.examine import Examined
from fuzz.finding import Finding, Signature, Verdict
from fuzz.known import Known
from fuzz.order import Progress
from fuzz.record import Record
from fuzz.resume import Leftover, Past
from fuzz.store import Store
from fuzz.tally import Tally


class Logbook:
    """Not for two threads at a time: whoever shares it has the lock. ``past``: what the campaign wrote before."""

    def __init__(self, store: Store, progress: Progress, known: Mapping[str, Known], past: Past) -> None:
        self._store, self._progress = store, progress
        self.tally = Tally({signature: one.reason for signature, one in known.items()})
        self.tally.count_earlier(past.records, past.entries)

    @property
    def counts(self) -> dict[str, int]:
        """How often each signature was met."""
        return {signature: entry["count"] for signature, entry in self.tally.findings.items()}

    def entry(self, finding: Finding) -> dict[str, Any]:
        """What stands of this finding."""
        return self.tally.findings[str(finding.signature)]

    def give_up(self, lost: Sequence[Leftover]) -> None:
        """Write down the programs over which everything ended again and again."""
        for leftover in lost:
            record = leftover.record
            self.tally.count_program(record)
            signature = Signature.parse(record.signature)
            finding = Finding(Verdict.INFRA, signature, record.title, record.reason, 0, "unknown")
            self._note(finding, record, leftover.program)
            self._store.end(record)

    def keep(self, record: Record, program: str, findings: Sequence[Finding]) -> list[dict[str, Any]]:
        """A program that has run, and what it found; returns the entries of the bugs to be looked into."""
        self.tally.count_program(record)
        noted = [self._note(finding, record, program) for finding in findings]
        self._store.end(record)
        self._progress.program_done(record)
        return [entry for entry in noted if entry is not None]

    def _note(self, finding: Finding, record: Record, program: str) -> dict[str, Any] | None:
        """Count a finding and write it down if it is new; its entry if it is a new bug."""
        entry = self.tally.count_finding(finding, record, program)
        if entry is None:
            return None
        self.write_findings()
        if finding.verdict is Verdict.BUG and not entry["known"]:
            return entry
        self._progress.finding(entry)
        return None

    def settle(self, finding: Finding, examined: Examined) -> None:
        """Write down what a look into a finding came to."""
        entry, confirmed = self.entry(finding), examined.confirmed
        entry.update(confirmed.finding.to_json())
        entry.update(program=confirmed.program.text, program_hash=confirmed.program.hash)
        entry.update(reliability=[confirmed.shown, confirmed.runs], shrunk_ops=len(confirmed.program.ops))
        entry.update(otherwise=confirmed.otherwise, beside=list(confirmed.beside))
        entry.update(real=None if confirmed.real is None else asdict(confirmed.real))
        entry.update(script=examined.script, examined=examined.is_whole, dismissed=examined.dismissed)
        self.write_findings()
        self._progress.finding(entry)

    def write_findings(self) -> None:
        self._store.write_findings(list(self.tally.findings.values()))
