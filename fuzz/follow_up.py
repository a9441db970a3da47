"""Faults that a campaign may not meet, known ones and those of an earlier run: each is tried in its own program."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from fuzz.confirm import Patience, Runner
from fuzz.known import Known
from fuzz.order import CampaignOptions
from fuzz.recheck import Standing, read_standings, recheck, standings, to_try, write_standings
from fuzz.salvage import Tell
from fuzz.since import Earlier, Sequel, read_earlier, read_sequels, rerun, sequels, to_rerun, write_sequels

KNOWN_SECONDS = 60  # past the campaign's end, to try the known faults that it did not meet
SINCE_SECONDS = 60  # past that, to try those of an earlier run


class FollowUp:
    """Holds what is told of each by now. Not for two threads at a time, but for ``run``: whoever shares it has a lock.

    ``counts``, wherever it is asked for, is how often the campaign met each signature.
    """

    def __init__(self, options: CampaignOptions, known: Mapping[str, Known], tell: Tell) -> None:
        self._options, self._known = options, known
        self._standings = read_standings(options.out, tell)
        self._earlier = read_earlier(options.since, tell)
        self._sequels = read_sequels(options.out, tell)

    def known(self, counts: Mapping[str, int]) -> list[Known]:
        """The known faults that are this shard's to try."""
        mine = dict(islice(self._known.items(), self._options.shard, None, self._options.shards))
        return to_try(mine, counts, self._standings)

    def earlier(self, counts: Mapping[str, int]) -> list[Earlier]:
        """The faults of the earlier run that are this shard's to run."""
        return to_rerun(self._earlier[self._options.shard :: self._options.shards], counts, self._sequels)

    def run(self, runner: Runner, fault: Known | Earlier, patience: Patience) -> Standing | Sequel | None:
        """Run the fault's own program; None when time is up or the worker is lost."""
        if isinstance(fault, Known):
            return recheck(runner, fault, self._options.device, patience)
        return rerun(runner, fault, self._options.device, patience)

    def settle(self, answer: Standing | Sequel) -> None:
        if isinstance(answer, Standing):
            self._standings[answer.signature] = answer
        else:
            self._sequels[answer.signature] = answer

    def write(self, counts: Mapping[str, int]) -> tuple[list[Standing], list[Sequel]]:
        """How all of them stand, which is put on disk."""
        stand = standings(self._known, counts, self._standings)
        later = sequels(self._earlier, counts, self._sequels)
        if stand:
            write_standings(self._options.out, stand)
        if later:
            write_sequels(self._options.out, later)
        return stand, later


def seconds_past_end(fault: Known | Earlier) -> int:
    """How long after the campaign's end a fault may still be tried."""
    return KNOWN_SECONDS if isinstance(fault, Known) else KNOWN_SECONDS + SINCE_SECONDS
