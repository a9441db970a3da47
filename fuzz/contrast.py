"""A campaign set against the same campaign on a baseline, as plain data: what is new, gone, and as it was."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuzz.duel import STATES, Duel
from fuzz.order import CampaignError, CampaignOptions

COULD_NOT_RUN = 3


@dataclass(frozen=True, slots=True)
class ContrastOptions:
    """``campaign`` is the one on the target; ``seconds`` of it count from when both targets are imported."""

    baseline: str
    campaign: CampaignOptions

    def check(self) -> None:
        """Raise CampaignError on the first rule broken."""
        if self.baseline == self.campaign.target:
            raise CampaignError(f"baseline and target are both {self.baseline!r}; expected two different targets")
        self.campaign.check()

    @property
    def command(self) -> str:
        """The command line that contrasts the same programs again."""
        words = shlex.split(replace(self.campaign, target="").command)
        target = words.index("--target")
        return shlex.join(
            ["seamripper", "contrast", "--baseline", self.baseline, "--target", self.campaign.target]
            + words[target + 2 :]
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """One fault on both targets. ``programs`` of the campaign showed it on the baseline and on the target.

    ``duel`` is of ``program``, the smallest that showed it on one of them alone, if any did; ``script`` is saved where
    the fault is new.
    """

    signature: str
    title: str
    pair: str
    mode: str
    programs: tuple[int, int]
    duel: Duel
    program: str
    script: str = ""

    @property
    def state(self) -> str:
        return self.duel.state

    def to_json(self) -> dict[str, Any]:
        return {
            "signature": self.signature,
            "title": self.title,
            "pair": self.pair,
            "mode": self.mode,
            "programs": {"baseline": self.programs[0], "target": self.programs[1]},
            **self.duel.to_json(),
            "program": self.program,
            "script": self.script,
        }


@dataclass(frozen=True, slots=True)
class ContrastResult:
    """``programs`` were run on both. ``pairs_apart``: pair -> why it was left out. ``reason``: why it ended early."""

    baseline: str
    target: str
    versions: tuple[str, str]
    differences: tuple[Difference, ...]
    programs: int
    steps: tuple[int, int]
    verdicts: tuple[dict[str, int], dict[str, int]]
    pairs: tuple[str, ...]
    pairs_apart: dict[str, str]
    out: Path
    command: str
    interrupted: bool = False
    reason: str = ""

    @property
    def exit_code(self) -> int:
        """1 if anything is new; else 3 if it came to no proper end (Ctrl-C is one), and 0 if it did."""
        if self.count("new"):
            return 1
        return COULD_NOT_RUN if self.reason else 0

    def count(self, state: str) -> int:
        return sum(difference.state == state for difference in self.differences)

    def to_json(self) -> dict[str, Any]:
        return {
            "exit_code": self.exit_code,
            "baseline": self.baseline,
            "target": self.target,
            "versions": {"baseline": self.versions[0], "target": self.versions[1]},
            **{state: self.count(state) for state in STATES},
            "differences": [difference.to_json() for difference in self.differences],
            "programs": self.programs,
            "steps": {"baseline": self.steps[0], "target": self.steps[1]},
            "verdicts": {"baseline": self.verdicts[0], "target": self.verdicts[1]},
            "pairs": list(self.pairs),
            "pairs_apart": self.pairs_apart,
            "out": str(self.out),
            "command": self.command,
            "interrupted": self.interrupted,
            "reason": self.reason,
        }


def in_order(differences: list[Difference]) -> tuple[Difference, ...]:
    """What matters most first: new, uncertain, gone, unchanged; then by signature."""
    return tuple(sorted(differences, key=lambda one: (STATES.index(one.state), one.signature)))
