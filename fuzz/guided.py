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
from pathlib import Path

from fuzz.choice import Seeded
from fuzz.corpus import Corpus, Entry
from fuzz.features import features_of
from fuzz.finding import Verdict
from fuzz.generate import Limits, program_for
from fuzz.program import Program
from fuzz.salvage import Tell
from fuzz.trace import Trace
from fuzz.variation import vary

# One program in so many is drawn anew: what has not been seen yet need not lie near what has.
DRAWN_EVERY = 3
# Of the rarest thing that an entry was first to show: so much over the times that it was met is the entry's weight.
WEIGHT = 1000
SHARED_EVERY = 32  # programs between two looks at what others wrote into the corpus
OFFSET = 1 << 40  # so that what is varied, and how, has nothing to do with what its seed alone would draw


class Guided:
    """Programs depend on what has been learned when they are asked for. Any thread may ask and tell.

    ``version`` is SGLang's: what a corpus says of another one is not believed, but run again first of all.
    """

    def __init__(self, limits: Limits, folder: Path, version: str, tell: Tell) -> None:
        self._limits, self._version = limits, version
        self._corpus = Corpus(folder, tell)
        self._lock = threading.Lock()
        self._entries: list[tuple[Entry, tuple[int, ...]]] = []  # each with what it was first to show
        self._again: list[Program] = []
        self._met: Counter[int] = Counter()  # feature -> programs that showed it
        self._known: set[int] = set()  # features that some entry has
        self._asked = 0
        self._share()

    @property
    def entries(self) -> Sequence[Entry]:
        with self._lock:
            return [entry for entry, _ in self._entries]

    def program(self, seed: int) -> Program | None:
        with self._lock:
            self._asked += 1
            if self._asked % SHARED_EVERY == 0:
                self._share()
            if self._again:
                return self._again.pop()
            choices = Seeded(OFFSET + seed)
            if not self._entries or choices.chance(1, DRAWN_EVERY):
                return program_for(seed, self._limits)
            weighed = [(self._weight(own), entry) for entry, own in self._entries]
            parent, (other, _) = choices.weigh(weighed), choices.pick(self._entries)
        return vary(choices, parent.program, other.program, self._limits)

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
        self._entries.append((entry, tuple(entry.features - self._known)))
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

    def _weight(self, own: tuple[int, ...]) -> int:
        return 1 + WEIGHT // min((self._met[feature] or 1 for feature in own), default=WEIGHT)
