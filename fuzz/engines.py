"""Where a campaign's programs come from: drawn at random, one by one all there are in a small scope, or guided.

The first two number their programs from 0 on, and the same number is the same program whenever it is asked for. What
guided ones are hangs on what was learned before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from fuzz.agenda import SEED_STRIDE
from fuzz.choice import exhaustive
from fuzz.corrupted import corrupted
from fuzz.generate import generate, program_for
from fuzz.guided import Guided
from fuzz.limits import Limits
from fuzz.order import ATHERIS, CampaignOptions
from fuzz.program import Program
from fuzz.salvage import Tell
from fuzz.trace import Trace
from fuzz.worlds import modes_of
from stubs.world import World

SMALL_OPS_MAX = (
    4  # a world has up to some thousand programs of two ops, and ten to a hundred times that of each op more
)
SMALL_PAGES = {1: 8, 2: 12}  # page size -> context length: prompts of up to two and up to six tokens
SMALL_SPEC_STEPS = 2  # the fewest that SGLang needs a draft decode backend for
KEPT = 64  # programs that other threads may still ask for


class Engine(Protocol):
    def program(self, seed: int) -> Program | None:
        """The program of a seed that an Agenda gave out; None past the last. Any thread may ask."""

    def learn(self, program: Program, trace: Trace) -> None:
        """Told of each of its programs, from any thread, what came of it."""


class Random:
    """A seed is all there is to a program."""

    def __init__(self, limits: Limits, *, corrupt: bool = False) -> None:
        self._limits, self._corrupt = limits, corrupt

    def program(self, seed: int) -> Program | None:
        program = program_for(seed, self._limits)
        return corrupted(program, seed) if self._corrupt else program

    def learn(self, program: Program, trace: Trace) -> None:
        pass  # nothing that is seen changes what is drawn


class Exhaustive:
    """All programs of one op, then of two, and so on, by turns of the small worlds; each program once.

    The campaign's seed is the seed of all their data. Seeds are asked for in about ascending order.
    """

    def __init__(self, limits: Limits, data_seed: int) -> None:
        self._programs = small_programs(small_worlds(limits))
        self._data_seed = data_seed
        self._lock = threading.Lock()
        self._drawn = 0
        self._kept: dict[int, Program] = {}

    def program(self, seed: int) -> Program | None:
        number = seed % SEED_STRIDE
        with self._lock:
            while self._drawn <= number:
                program = next(self._programs, None)
                if program is None:
                    break
                self._kept[self._drawn] = replace(program, seed=self._data_seed)
                self._drawn += 1
                self._kept.pop(self._drawn - KEPT, None)
            return self._kept.pop(number, None)

    def learn(self, program: Program, trace: Trace) -> None:
        pass  # all there are, whatever comes of them


def engine_of(options: CampaignOptions, limits: Limits, version: str, tell: Tell) -> Engine:
    """``version`` is SGLang's; ``tell`` hears of files of a corpus that cannot be read. Raises StoreError."""
    if options.engine == "exhaustive":
        return Exhaustive(limits, options.seed)
    if options.engine == ATHERIS:
        return Guided(limits, options.corpus_folder, version, tell)
    return Random(limits, corrupt=options.corrupt)


def small_worlds(limits: Limits) -> tuple[World, ...]:
    """A few worlds a pair: plain, and of each way in which it verifies, a chain and a tree."""
    return tuple(
        world
        for page_size, context_len in SMALL_PAGES.items()
        for pair in limits.pairs
        for world in _of_pair(_plain(pair, page_size, context_len, limits), limits.speculative)
    )


def small_programs(worlds: Sequence[World]) -> Iterator[Program]:
    """Shorter programs first; of one length, one of each world by turns."""
    for ops in range(1, SMALL_OPS_MAX + 1):
        seen: set[str] = set()
        left = [_of_length(world, ops) for world in worlds]
        while left:
            for programs in list(left):
                program = next((one for one in programs if one.hash not in seen and len(one.ops) == ops), None)
                if program is None:
                    left.remove(programs)
                else:
                    seen.add(program.hash)
                    yield program


def _of_length(world: World, ops: int) -> Iterator[Program]:
    limits = Limits(pairs=(world.pair,), worlds=(world,), ops_min=ops, ops_max=ops, twins=True)
    for choices in exhaustive():
        program = generate(choices, limits)
        if program.seed:  # the first choice of all: everything has been seen with the lowest
            return
        yield program


def _plain(pair: str, page_size: int, context_len: int, limits: Limits) -> World:
    prefill, _, decode = pair.partition(":")
    return World(
        prefill=prefill,
        decode=decode,
        runner=limits.runner,
        device=limits.device,
        num_heads=1,
        num_kv_heads=1,
        page_size=page_size,
        context_len=context_len,
        max_running_requests=2,
        max_total_tokens=64,
    )


def _of_pair(plain: World, speculative: Mapping[str, Mapping[str, int]] | None) -> list[World]:
    worlds = [plain]
    for mode, steps_max in modes_of(plain.pair, speculative).items():
        steps = min(steps_max, SMALL_SPEC_STEPS)
        drafts = replace(plain, spec_algorithm="EAGLE", spec_mode=mode, spec_steps=steps)
        worlds.append(replace(drafts, spec_topk=1, spec_draft_tokens=steps + 1))
        worlds.append(replace(drafts, spec_topk=2, spec_draft_tokens=3))
    return worlds
