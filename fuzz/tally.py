"""What a campaign has seen so far: programs, steps, and each signature once with how often it came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.control import is_borderline
from fuzz.finding import Finding, Signature, Verdict
from fuzz.order import CampaignOptions, CampaignResult
from fuzz.recheck import Standing
from fuzz.record import Record
from fuzz.since import Sequel

IDLE = "no program put the target to the test; see the records for why, or give it more time"


@dataclass(slots=True)
class Tally:
    """``findings`` maps a signature to its entry, as findings.jsonl holds it; ``seen`` are those of this campaign.

    ``known`` maps signatures to why they are known, ``owed`` counts what earlier records say of signatures that have no
    entry. ``reached`` are the pairs and modes of the steps that ran.
    """

    known: Mapping[str, str] = field(default_factory=dict)
    programs: int = 0
    steps: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    owed: Counter[str] = field(default_factory=Counter)
    reached: set[tuple[str, str]] = field(default_factory=set)

    def count_program(self, record: Record) -> None:
        self.programs += 1
        self.steps += sum(count for _, _, count in record.steps)
        self.verdicts[record.verdict] += 1
        ran = (Verdict.OK.value, Verdict.BUG.value)
        pair = f"{record.prefill}:{record.decode}"
        self.reached.update((pair, mode) for mode, verdict, _ in record.steps if verdict in ran)

    def count_finding(self, finding: Finding, record: Record, program: str) -> dict[str, Any] | None:
        """Count it. The entry if nobody has looked into this signature yet, else None.

        An entry that a kill left before anybody had looked is taken up again.
        """
        signature = str(finding.signature)
        is_first, earlier = signature not in self.seen, self.findings.get(signature)
        self.seen.add(signature)
        if earlier is not None:
            earlier["count"] += 1
            if earlier.get("dismissed") and not is_borderline(finding):  # rounding there is, and here more than that
                earlier.update(finding.to_json(), program=program, program_hash=record.program)
                earlier.update(dismissed="", examined=False, seed=record.seed)
                return earlier
            return earlier if is_first and not earlier["examined"] else None
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
            "otherwise": "",
            "beside": [],
            "real": None,
            "examined": False,
            "dismissed": "",
            "first_seconds": record.elapsed_seconds,
            "first_programs": self.programs,
            "count": 1 + self.owed.pop(signature, 0),
            "shrunk_ops": record.ops,
            "script": "",
            **self._known(signature),
        }
        return entry

    def _known(self, signature: str) -> dict[str, Any]:
        return {"known": signature in self.known, "known_reason": self.known.get(signature, "")}

    def count_earlier(self, records: Iterable[Record], entries: Iterable[dict[str, Any]]) -> None:
        """Take up what an earlier run of this campaign left: its records, and the entries of what they found.

        Counts are made anew from the records: those of the entries are of when they were last written.
        """
        for entry in entries:
            self.findings[entry["signature"]] = {**entry, "count": 0, **self._known(entry["signature"])}
        for record in records:
            self.count_program(record)
            for signature in record.signatures:
                if signature in self.findings:
                    self.findings[signature]["count"] += 1
                    self.seen.add(signature)
                else:  # its entry is lost, and is made anew
                    self.owed[signature] += 1

    @property
    def unexamined(self) -> list[dict[str, Any]]:
        """What is to be looked into of this campaign, and nobody has to the end."""
        return [entry for entry in self._unknown_bugs if not entry["examined"]]

    @property
    def new_bugs(self) -> list[dict[str, Any]]:
        """Bugs of this campaign that nobody knew, on valid programs: what makes it exit 1."""
        return [entry for entry in self._unknown_bugs if not Signature.parse(entry["signature"]).is_corrupt]

    @property
    def _unknown_bugs(self) -> list[dict[str, Any]]:
        seen = (entry for signature, entry in self.findings.items() if signature in self.seen)
        return [entry for entry in seen if is_believed(entry) and not entry["known"]]

    def result(
        self,
        options: CampaignOptions,
        known: Sequence[Standing],
        since: Sequence[Sequel] = (),
        *,
        reason: str = "",
        has_given_up: bool = False,
        interrupted: bool = False,
    ) -> CampaignResult:
        """What the campaign answers. ``reason``: why it ended early, or could not run."""
        findings = [entry for signature, entry in self.findings.items() if signature in self.seen]
        if not self.ran_something and not reason:
            reason = IDLE
        has_run = self.ran_something and not has_given_up
        return CampaignResult(
            findings=findings,
            programs=self.programs,
            steps=self.steps,
            exit_code=1 if self.new_bugs else 0 if has_run else 3,
            out=options.out,
            scripts=tuple(Path(entry["script"]) for entry in findings if entry["script"]),
            interrupted=interrupted,
            reason=reason,
            known=tuple(standing.to_json() for standing in known),
            since=tuple(sequel.to_json() for sequel in since),
        )

    @property
    def ran_something(self) -> bool:
        """Whether any program put the target to the test; one refused, or met by a fault of the harness, did not."""
        return bool(self.verdicts[Verdict.OK.value] or self.verdicts[Verdict.BUG.value])


def is_believed(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is of a fault of the target that its control has not dismissed."""
    return entry["verdict"] == Verdict.BUG.value and not entry.get("dismissed")
