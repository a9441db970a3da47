"""Where the programs of ``--engine atheris`` come from: variations of those that showed something new of the target.

A worker (``fuzz.harness``) tells with each trace which blocks of the target's code ran, by atheris's instrumentation. What
to try next is decided here and not by libFuzzer, whose loop owns its process: a death would cost the whole corpus run
again at seconds a program, and nobody could write down a program before it runs. So a finding, a death or a
resumed campaign costs what it costs other engines.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz.choice import Choices, Seeded
from fuzz.corpus import Corpus, Entry
from fuzz.features import CODE, features_of
from fuzz.finding import Verdict
from fuzz.generate import Limits, program_for
from fuzz.program import Program
from fuzz.salvage import Tell
from fuzz.trace import Trace
from fuzz.variation import vary

# How often, in so many programs, one is drawn anew, which need not lie near what has been seen; is of one of the newest
# that ran code of their own, behind which more may lie; of any that did; or of any that is kept.
DRAWN, NEWEST, CODE_FIRST, ANY = 2, 2, 2, 2
NEWEST_MAX = 4
# Of the rarest thing that an entry was first to show: so much over the times that it was met is the entry's weight.
WEIGHT = 1000
SHARED_EVERY = 32  # programs between two looks at what others wrote into the corpus
OFFSET = 1 << 40  # so that what is varied, and how, has nothing to do with what its seed alone would draw


@dataclass(frozen=True, slots=True)
class Kept:
    """``own`` is what the entry was first to show; ``code`` whether a piece of the target's code is among that."""

    entry: Entry
    own: tuple[int, ...]

    @property
    def code(self) -> bool:
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
        self._again: list[Program] = []
        self._met: Counter[int] = Counter()  # feature -> programs that showed it
        self._known: set[int] = set()  # features that some entry has
        self._asked = 0
        self._share()

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
            parent = self._parent(choices)
            if parent is None:
                return program_for(seed, self._limits)
            other = choices.pick(self._kept)
        return vary(choices, parent.entry.program, other.entry.program, self._limits)

    def _parent(self, choices: Choices) -> Kept | None:
        """What to vary; None to draw one anew."""
        sources: list[tuple[int, Sequence[Kept]]] = [
            (DRAWN, ()),
            (NEWEST, self._with_code[-NEWEST_MAX:] or self._kept),
            (CODE_FIRST, self._with_code or self._kept),
            (ANY, self._kept),
        ]
        source = choices.weigh(sources)
        return choices.weigh([(self._weight(kept), kept) for kept in source]) if source else None

    def learn(self, program: Program, trace: Trace) -> None:
        """Take note of what a program showed, and keep it if that was new. Raises StoreError."""
        if trace.verdict not in (Verdict.OK, Verdict.BUG):
            return
        features = features_of(program, trace)
        with self._lock:
            self._met.update(features)
            # What a fault ended in the middle is no ground to build on.
            ran_through = bool(trace.steps) and trace.steps[-1].op_index == len(program.ops) - 1
            if ran_through and not features <= self._known:
                entry = Entry(program, features, self._version)
                self._take(entry)
                self._corpus.add(entry)

    def _take(self, entry: Entry) -> None:
        kept = Kept(entry, tuple(sorted(entry.features - self._known)))
        self._kept.append(kept)
        self._with_code += [kept] if kept.code else []
        self._known |= entry.features

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
