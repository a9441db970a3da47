"""How long the looks into findings may take: while there are programs to run, a share of the time.

The share is larger in a campaign's second half: what there is to find then is less, and what was found would be left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LOOKING_SHARE = 1 / 3  # of all workers' time, while there are programs to run
LATE_SHARE = 2 / 3  # of the second half
SHORTEST_SECONDS = 10  # a look that is worth beginning: to confirm a finding takes a few
SHORTEST_SHARE = 1 / 30  # of a longer campaign's time: it has as many findings, and each can be made really small
LONGEST_SECONDS = 60  # to confirm and shrink one finding; past the campaign's end, for all of them together


@dataclass(slots=True)
class Looking:
    """``seconds`` have gone into looks, of all workers, those under way counted as long as they may take.

    Workers have run programs, or might have, since ``since`` (monotonic), and will until ``until``. No look shorter than
    ``shortest`` is begun. Not for two threads at a time: whoever shares it has the lock.
    """

    since: float
    workers: int = 1
    shortest: float = SHORTEST_SECONDS
    until: float = math.inf
    seconds: float = 0.0

    def begin(self, now: float) -> float | None:
        """How long a look that is begun now may take; None while it is not the time for one."""
        late = max(0.0, now - (self.since + self.until) / 2)
        share = LOOKING_SHARE * (now - self.since) + (LATE_SHARE - LOOKING_SHARE) * late
        due = share * self.workers - self.seconds
        if due < self.shortest:
            return None
        granted = min(due, LONGEST_SECONDS)
        self.seconds += granted
        return granted

    def end(self, granted: float, taken: float) -> None:
        """A look that might take ``granted`` seconds took so many."""
        self.seconds += taken - granted


def shortest_of(seconds: float | None) -> float:
    """How short a look may be in a campaign of so many seconds (None: of so many programs)."""
    return LONGEST_SECONDS if seconds is None else min(max(seconds * SHORTEST_SHARE, SHORTEST_SECONDS), LONGEST_SECONDS)


def last_seconds(left: float, findings: int) -> float:
    """How long a look may take when there are no more programs to run, and so many findings to look into.

    All of it has to end in ``left`` seconds: a look gets its part of them, and no less than is worth beginning.
    """
    return max(0.0, min(left, LONGEST_SECONDS, max(left / max(findings, 1), SHORTEST_SECONDS)))
