"""Cells of the table pair x mode that a campaign's programs leave open: each is tried by a program made for it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.agenda import SEED_STRIDE
from fuzz.cells import CELLS, Attempt, Cell, attempts, inherit, runs, settle
from fuzz.finding import Verdict
from fuzz.order import CampaignOptions
from fuzz.salvage import Tell, lines_of
from fuzz.sealed import sealed, unsealed
from fuzz.store import write_whole
from fuzz.terms import Terms
from fuzz.trace import Trace

CELLS_FILE = "cells.jsonl"
SHARE = 0.1  # of a campaign's time, at its end: what it has not come to by then, chance does not bring
Place = tuple[str, str]  # pair and mode


@dataclass(slots=True)
class Gaps:
    """Attempts are taken once each, and only while one of their cells is open. Whoever shares it has the lock.

    ``reached`` are the cells that any program ran in; ``cells`` what is known of others; ``refused`` the pairs that do
    not start, each with SGLang's reason; ``done`` the seeds of programs that ran already. Attempts are given out from
    ``begin`` to ``end``, both monotonic, of the pairs in ``tried``, of all where it is None.
    """

    pairs: tuple[str, ...]
    device: str
    seed: int
    reached: set[Place]
    begin: float = 0.0
    end: float = float("inf")
    cells: dict[Place, Cell] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    tried: Sequence[str] | None = None
    _left: list[tuple[int, Attempt]] = field(default_factory=list)

    def __post_init__(self) -> None:
        tries = (attempt for pair in self.pairs for attempt in attempts(pair, self.device))
        # The last seeds of the campaign: the programs drawn at random have the first.
        numbered = ((self.seed * SEED_STRIDE + SEED_STRIDE - 1 - index, one) for index, one in enumerate(tries))
        tried = self.pairs if self.tried is None else self.tried
        self._left = [
            (seed, one) for seed, one in numbered if seed not in self.done and one.program.world.pair in tried
        ]

    def take(self) -> tuple[int, Attempt] | None:
        """The next attempt, and the seed that its record has; None where it is not the time, or there is none left."""
        while self._left and self.begin <= time.monotonic() < self.end:
            seed, attempt = self._left.pop(0)
            pair = attempt.program.world.pair
            if all((pair, mode) in self.reached for mode in attempt.modes):
                continue
            found = self._of(pair)
            if not inherit(found, attempt):
                return seed, attempt
            self._keep(pair, found)
        return None

    def settle(self, attempt: Attempt, trace: Trace) -> None:
        """Keep what the trace says of the attempt's cells."""
        pair = attempt.program.world.pair
        found = self._of(pair)
        settle(found, attempt, trace)
        self._keep(pair, found)

    def _of(self, pair: str) -> dict[str, Cell]:
        return {mode: cell for (one, mode), cell in self.cells.items() if one == pair}

    def _keep(self, pair: str, found: Mapping[str, Cell]) -> None:
        self.cells.update({(pair, mode): cell for mode, cell in found.items()})

    def write(self, folder: Path) -> None:
        """One line for each cell that no program ran in: why not, as far as it is known."""
        write_cells(folder, dict(self._open()))

    def _open(self) -> Iterable[tuple[Place, Cell]]:
        for pair, reason in self.refused.items():
            yield from (((pair, mode), Cell(Verdict.UNSUPPORTED.value, reason)) for mode in CELLS)
        for pair in self.pairs:
            for mode in CELLS:
                cell = self.cells.get((pair, mode), Cell())
                if (pair, mode) not in self.reached and not runs(cell):
                    yield (pair, mode), cell


def write_cells(folder: Path, cells: Mapping[Place, Cell]) -> None:
    """One line for each. Raises StoreError."""
    lines = [_line(pair, mode, cell) for (pair, mode), cell in sorted(cells.items())]
    write_whole(folder / CELLS_FILE, "".join(lines))


def read_cells(folder: Path, tell: Tell) -> dict[Place, Cell]:
    """What an earlier run of the campaign found out."""
    return {place: cell for place, cell in lines_of(folder / CELLS_FILE, _parsed, tell) if cell.state}


def gaps_of(
    options: CampaignOptions,
    terms: Terms,
    deadline: float,
    reached: set[Place],
    done: set[int],
    cells: dict[Place, Cell],
) -> Gaps:
    """A campaign's. One that is to run so many programs, or has the real runner, tries none."""
    seconds = options.seconds if options.runner == "fake" else None
    begin = float("inf") if seconds is None else deadline - SHARE * seconds
    where = terms.pairs, options.device, options.seed, reached
    tried = terms.pairs[options.shard :: options.shards]
    return Gaps(*where, begin, deadline, cells, terms.refused, done, tried)


def _line(pair: str, mode: str, cell: Cell) -> str:
    return sealed({"pair": pair, "mode": mode, "state": cell.state, "reason": cell.reason}) + "\n"


def _parsed(line: str) -> tuple[Place, Cell]:
    data = unsealed(line)
    try:
        return (data["pair"], data["mode"]), Cell(str(data["state"]), str(data["reason"]))
    except KeyError as error:
        raise ValueError(f"lacks the field {error}") from None
