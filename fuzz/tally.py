"""What a campaign has seen so far: programs, steps, and each signature once with how often it came."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fuzz.finding import Finding, Verdict
from fuzz.record import Record


@dataclass(slots=True)
class Tally:
    """``findings`` maps a signature to its entry, as findings.jsonl holds it; ``seen`` are those of this campaign."""

    known: frozenset[str] = frozenset()
    programs: int = 0
    steps: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def count_program(self, record: Record) -> None:
        self.programs += 1
        self.steps += sum(count for _, _, count in record.steps)
        self.verdicts[record.verdict] += 1

    def count_finding(self, finding: Finding, record: Record, program: str) -> dict[str, Any] | None:
        """Count it. The entry if nobody has looked into this signature yet, else None.

        An entry of an earlier campaign in the folder that was killed before it looked is taken up again.
        """
        signature = str(finding.signature)
        is_first, earlier = signature not in self.seen, self.findings.get(signature)
        self.seen.add(signature)
        if earlier is not None:
            earlier["count"] += 1
            return earlier if is_first and earlier["reliability"] == [0, 0] else None
        self.findings[signature] = entry = {
            **finding.to_json(),
            "program": program,
            "program_hash": record.program,
            "target": record.target,
            "sglang_version": record.sglang_version,
            "runner": record.runner,
            "pair": f"{record.prefill}:{record.decode}",
            "seed": record.seed,
            "reliability": [0, 0],
            "first_seconds": record.elapsed_seconds,
            "first_programs": self.programs,
            "count": 1,
            "shrunk_ops": record.ops,
            "script": "",
            "known": signature in self.known,
        }
        return entry

    @property
    def new_bugs(self) -> list[dict[str, Any]]:
        """Bugs of this campaign that nobody knew."""
        seen = (entry for signature, entry in self.findings.items() if signature in self.seen)
        return [entry for entry in seen if entry["verdict"] == Verdict.BUG.value and not entry["known"]]

    @property
    def ran_something(self) -> bool:
        """Whether any program put the target to the test; one that was refused or met a fault of the harness did not."""
        return bool(self.verdicts[Verdict.OK.value] or self.verdicts[Verdict.BUG.value])
