"""What came of looking for a known bug: one result a bug and seed, and over all seeds."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fuzz.known_bugs import KnownBug

# "both": fixed shows it too, so that a match says nothing. "unclear": the harness stood in the way on one of the two.
DETECTED, MISSED, BOTH, UNCLEAR = "detected", "missed", "both", "unclear"
STATES = (DETECTED, BOTH, UNCLEAR, MISSED)  # the most telling first


@dataclass(frozen=True, slots=True)
class Hunted:
    """One bug with one seed, sought for at most ``budget_seconds``.

    ``programs`` and ``seconds``: until it was found, or all that were spent. ``ops``: of the shrunk program. ``detail``
    says why it is unclear, or what else is to be said. ``script`` is where it was saved, ``exits`` what that exits with
    on present and on fixed.
    """

    bug: KnownBug
    seed: int
    budget_seconds: float
    state: str
    oracle: str = ""
    signature: str = ""
    title: str = ""
    programs: int = 0
    seconds: float = 0.0
    ops: int = 0
    detail: str = ""
    script: str = ""
    exits: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Hunted:
        return cls(**{**data, "bug": KnownBug(**data["bug"]), "exits": tuple(data["exits"])})


@dataclass(frozen=True, slots=True)
class Score:
    """One bug over all seeds. Medians count a seed that did not detect it as infinite: None says that most did not."""

    bug: KnownBug
    results: tuple[Hunted, ...]

    @property
    def best(self) -> Hunted:
        """The result that says most: of the first seed that detected it, if one did."""
        return min(self.results, key=lambda result: (STATES.index(result.state), result.seed))

    @property
    def detected(self) -> int:
        """By how many seeds."""
        return sum(result.state == DETECTED for result in self.results)

    @property
    def programs(self) -> int | None:
        middle = self._median([result.programs for result in self.results])
        return None if middle is None else math.ceil(middle)

    @property
    def seconds(self) -> float | None:
        return self._median([result.seconds for result in self.results])

    def _median(self, values: Sequence[float]) -> float | None:
        pairs = zip(values, self.results, strict=True)
        middle = statistics.median_high(value if result.state == DETECTED else math.inf for value, result in pairs)
        return None if math.isinf(middle) else middle

    def to_json(self) -> dict[str, Any]:
        told = {"state": self.best.state, "detected": self.detected, "oracle": self.best.oracle}
        told |= {"programs": self.programs, "seconds": self.seconds, "ops": self.best.ops, "script": self.best.script}
        seeds = [{name: value for name, value in result.to_json().items() if name != "bug"} for result in self.results]
        return {**asdict(self.bug), **told, "seeds": seeds}


def scores(results: Sequence[Hunted]) -> list[Score]:
    """In the order in which the bugs come first."""
    bugs = dict.fromkeys(result.bug for result in results)
    return [Score(bug, tuple(result for result in results if result.bug == bug)) for bug in bugs]


def read_results(path: Path) -> Iterator[Hunted]:
    """The results that an earlier hunt wrote; a line that a kill cut short is left out."""
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.endswith("}"):
            yield Hunted.from_json(json.loads(line))
