"""What a campaign has yet to do: findings to look into, programs to run, known faults and an earlier run's to try."""

from __future__ import annotations

import time
from typing import Any

from fuzz.known import Known
from fuzz.order import CampaignOptions
from fuzz.since import Earlier

SEED_STRIDE = 1_000_003  # a prime above any campaign's number of programs, so that seeds do not share programs


class Agenda:
    """Each item is taken once. Not for two threads at a time: whoever shares it has the lock.

    ``done`` are the seeds of programs that an earlier run of the campaign ran. ``deadline`` is monotonic.
    """

    def __init__(
        self,
        options: CampaignOptions,
        deadline: float,
        done: set[int],
        unexamined: list[dict[str, Any]],
        known: list[Known],
        earlier: list[Earlier],
    ) -> None:
        self._options, self._deadline, self._done = options, deadline, done
        self._unexamined, self._known, self._earlier = unexamined, known, earlier
        self._next_index = 0

    @property
    def is_empty(self) -> bool:
        return not (self._unexamined or self._known or self._earlier) and self._is_spent()

    @property
    def unexamined(self) -> int:
        """How many findings nobody has looked into to the end."""
        return len(self._unexamined)

    def take_unexamined(self) -> dict[str, Any] | None:
        """The entry of a finding that nobody has looked into to the end: a crash first, which is soon looked into."""
        if not self._unexamined:
            return None
        first = min(self._unexamined, key=lambda entry: not entry["signature"].startswith("contract/"))
        self._unexamined.remove(first)
        return first

    def put_unexamined(self, entries: list[dict[str, Any]]) -> None:
        self._unexamined += entries

    def take_seed(self) -> int | None:
        """The seed of the next program, or None when the budget is spent."""
        if self._is_spent():
            return None
        self._next_index += 1
        return self._seed(self._next_index - 1)

    def take_known(self) -> Known | None:
        return self._known.pop(0) if self._known else None

    def take_earlier(self) -> Earlier | None:
        return self._earlier.pop(0) if self._earlier else None

    def _is_spent(self) -> bool:
        while self._seed(self._next_index) in self._done:
            self._next_index += 1
        programs = self._options.programs
        enough = programs is not None and self._number(self._next_index) >= programs
        return enough or time.monotonic() >= self._deadline

    def _seed(self, index: int) -> int:
        return self._options.seed * SEED_STRIDE + self._number(index)

    def _number(self, index: int) -> int:
        """Of the programs of all shards: they are dealt out by turns."""
        return index * self._options.shards + self._options.shard
