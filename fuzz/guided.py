"""Where the programs of ``--engine atheris`` come from: variations of those that showed something new of the target.

A worker (``fuzz.harness``) tells with each trace which blocks of the target's code ran, by atheris's instrumentation.
What to try next is decided here and not by libFuzzer, whose loop owns its process: a death would cost the whole corpus
run again at seconds a program, and nobody could write down a program before it runs. So a finding, a death or a resumed
campaign costs what it costs other engines.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz.choice import Seeded
from fuzz.corpus import Corpus, Entry
from fuzz.features import CODE, features_of
from fuzz.finding import Verdict
from fuzz.generate import program_for
from fuzz.limits import Limits
from fuzz.program import Program
from fuzz.salvage import Tell
from fuzz.trace import Trace
from fuzz.variation import lengthen, vary

DRAWN, NEWEST, WITH_CODE, ANY = "drawn", "newest", "with code", "any"
# (weight, where the next program comes from): one drawn anew need not lie near what has been seen; the newest that ran
# code of their own are each tried with other ops behind them, which comes to what lies behind that code; variations of
# any that ran code of their own, and of any that is kept at all.
HOW = ((2, DRAWN), (3, NEWEST), (2, WITH_CODE), (1, ANY))
# Of the first programs all are drawn: what they come to by chance, which is most of the code, is soonest come to so.
DRAWN_FIRST = 24
RAREST, RAREST_TRIES = 8, 6  # of what that was so many count as new, and are lengthened so often
NEWEST_TRIES = 48  # an op behind is one of six kinds, of whichever requests; what is wanted may take two
NEWEST_MAX = 64  # where so many wait, the oldest are no longer new
# Of the rarest thing that an entry was first to show: so much over the times that it was met is the entry's weight.
WEIGHT = 1000
SHARED_EVERY = 32  # programs between two looks at what others wrote into the corpus
OFFSET = 1 << 40  # so that what is varied, and how, has nothing to do with what its seed alone would draw


@dataclass(frozen=True, slots=True)
class Kept:
    """``own`` is what the entry was first to show."""

    entry: Entry
    own: tuple[int, ...]

    @property
    def has_code(self) -> bool:
        """Whether a piece of the target's code is among that."""
        return any(feature & CODE for feature in self.own)


class Guided:
    """Programs depend on what has been learned when they are asked for. Any thread may ask and tell.

    ``version`` is SGLang's: what a corpus says of another one is not believed, but run again first of all.
    """

    def __init__(self, limits: Limits, folder: Path, version: str, tell: Tell) -> None:
        self._limits, self._version = limits, version
        self._corpus = Corpus(folder, tell)
        self._lock = threading.Lock()
        self._kept: list[Kept] = []
        self._with_code: list[Kept] = []
        self._newest: list[tuple[Kept, int]] = []  # of those, with how often each is yet to be lengthened
        self._again: list[Program] = []
        self._met: Counter[int] = Counter()  # feature -> programs that showed it
        self._known: set[int] = set()  # features that some entry has
        self._asked = 0
        self._share()
        self._drawn_first = 0 if self._kept else DRAWN_FIRST

    @property
    def entries(self) -> Sequence[Entry]:
        with self._lock:
            return [kept.entry for kept in self._kept]

    def program(self, seed: int) -> Program | None:
        with self._lock:
            self._asked += 1
            if self._asked % SHARED_EVERY == 0:
                self._share()
            if self._again:
                return self._again.pop()
            choices = Seeded(OFFSET + seed)
            how = choices.weigh(HOW)
            if how == DRAWN or not self._kept or self._drawn_first > 0:
                self._drawn_first -= 1
                if self._drawn_first == 0:
                    rarest = sorted(self._with_code, key=self._weight)[-RAREST:]
                    self._newest = [(kept, RAREST_TRIES) for kept in rarest]
                return program_for(seed, self._limits)
            if how == NEWEST and self._newest:
                return lengthen(choices, self._take_newest(), self._limits)
            source = self._kept if how == ANY else self._with_code or self._kept
            parent = choices.weigh([(self._weight(kept), kept) for kept in source]).entry.program
            other = choices.pick(self._kept).entry.program
        if how != ANY and choices.chance(1, 2):
            return lengthen(choices, parent, self._limits)
        return vary(choices, parent, other, self._limits)

    def _take_newest(self) -> Program:
        kept, tries = self._newest.pop()
        self._newest += [(kept, tries - 1)] if tries > 1 else []
        return kept.entry.program

    def learn(self, program: Program, trace: Trace) -> None:
        """Take note of what a program showed, and keep it if that was new. Raises StoreError.

        Kept are its ops up to the last that ran code that none had, and up to the last that showed anything new, but
        none that a fault ended: what shows more will most likely be that with other ops behind.
        """
        if trace.verdict not in (Verdict.OK, Verdict.BUG):
            return
        shown = features_of(program, trace)
        if trace.verdict is Verdict.BUG and len(shown) < len(program.ops):
            shown.pop()
        with self._lock:
            self._met.update(feature for features in shown for feature in features)
            for only_code in (True, False):
                fresh = [{f for f in features - self._known if f & CODE or not only_code} for features in shown]
                end = max((index + 1 for index, features in enumerate(fresh) if features), default=0)
                if end:
                    self._keep(program.with_ops(program.ops[:end]), frozenset().union(*shown[:end]))

    def _keep(self, program: Program, features: frozenset[int]) -> None:
        entry = Entry(program, features, self._version)
        kept = self._take(entry)
        if kept.has_code and self._drawn_first <= 0:
            self._newest = [*self._newest[1 - NEWEST_MAX :], (kept, NEWEST_TRIES)]
        self._corpus.add(entry)

    def _take(self, entry: Entry) -> Kept:
        kept = Kept(entry, tuple(sorted(entry.features - self._known)))
        self._kept.append(kept)
        self._with_code += [kept] if kept.has_code else []
        self._known |= entry.features
        return kept

    def _share(self) -> None:
        """Take up what stands in the corpus since the last look."""
        for entry in self._corpus.fresh():
            if not self._fits(entry.program):
                continue
            if entry.version == self._version:
                self._take(entry)
            else:
                self._again.append(entry.program)

    def _fits(self, program: Program) -> bool:
        world, limits = program.world, self._limits
        return (world.runner, world.device) == (limits.runner, limits.device) and world.pair in limits.pairs

    def _weight(self, kept: Kept) -> int:
        return 1 + WEIGHT // min((self._met[feature] or 1 for feature in kept.own), default=WEIGHT)
