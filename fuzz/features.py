"""What a run showed, as numbers that a search can count: runs of modes, with the pair and the flags of its world.

The same thing has the same number in every process and on every release.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from fuzz.finding import Verdict
from fuzz.program import Program
from fuzz.trace import Trace
from stubs.world import World

GRAM_MAX = 3  # modes in a row; of four there are more than any night runs programs
FLAG_GRAM_MAX = 2  # with each flag of the world
RAN = (Verdict.OK, Verdict.BUG)
CODE = 1 << 31  # set in numbers of what ran of the target's code, and in no other


def number(text: str) -> int:
    """31 bits that stand for ``text``; of fifty thousand texts one or two share theirs with another."""
    return zlib.crc32(text.encode()) >> 1


def code_number(text: str) -> int:
    """The same for a piece of the target's code."""
    return CODE | number(text)


def features_of(program: Program, trace: Trace) -> frozenset[int]:
    """All that a run showed: of the domain, and of the code as far as the executor watched it."""
    return frozenset(map(number, shown(program, trace))) | frozenset(trace.features)


def shown(program: Program, trace: Trace) -> Iterator[str]:
    """Of the domain: each run of up to three modes with the pair, of up to two with the pair and each flag as well."""
    pair, flags = program.world.pair, tuple(flags_of(program.world))
    modes = [step.mode for step in trace.steps if step.verdict in RAN]
    for size in range(1, GRAM_MAX + 1):
        for gram in _grams(modes, size):
            yield f"{pair} {gram}"
            if size <= FLAG_GRAM_MAX:
                yield from (f"{pair} {flag} {gram}" for flag in flags)


def flags_of(world: World) -> Iterable[str]:
    """What is out of the ordinary about a world, each in a word; sizes by what they mean to a kernel, not by number."""
    plain = World()
    for name in _SWITCHES:
        if getattr(world, name) != getattr(plain, name):
            yield name
    if world.num_heads == world.num_kv_heads:
        yield "ungrouped"
    if world.head_dim & (world.head_dim - 1):
        yield "head_dim_odd"
    if world.page_size > 1:
        yield "paged" if world.page_size < world.context_len // 2 else "paged_large"
    if world.max_total_tokens < 2 * world.context_len:
        yield "pool_tight"


# Fields that a world has or has not, whatever their value.
_SWITCHES = (
    "dtype",
    "num_layers",
    "sliding_window",
    "logit_cap",
    "layout",
    "overlap",
    "spec_algorithm",
    "query_scalar",
    "alternate_layers",
    "xai_temperature_len",
    "save_kv_cache",
    "deterministic",
    "logit_shift",
    "window_tokens",
    "radix_cache",
    "sinks",
    "v_head_dim",
    "kv_dtype",
    "kv_scale",
    "graph",
    "graph_max",
    "kv_lora_rank",
)


def _grams(modes: list[str], size: int) -> Iterator[str]:
    return (">".join(modes[at : at + size]) for at in range(len(modes) - size + 1))
