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


def features_of(program: Program, trace: Trace) -> list[frozenset[int]]:
    """What each op was the first to show, of those that began: of the domain, and of the code where it was watched."""
    count = max([len(trace.features), *(step.op_index + 1 for step in trace.steps)], default=0)
    texts: list[set[str]] = [set() for _ in range(count)]
    for op_index, text in shown(program, trace):
        texts[op_index].add(text)
    code = [*trace.features, *((),) * (count - len(trace.features))]
    seen: set[int] = set()
    found = []
    for op_texts, op_code in zip(texts, code, strict=True):
        found.append(frozenset({*map(number, op_texts), *op_code} - seen))
        seen |= found[-1]
    return found


def shown(program: Program, trace: Trace) -> Iterator[tuple[int, str]]:
    """Of the domain, each with the index of the op that showed it.

    Runs of up to three modes with the pair, of up to two with the pair and each flag as well.
    """
    pair, flags = program.world.pair, tuple(flags_of(program.world))
    steps = [step for step in trace.steps if step.verdict in RAN]
    for size in range(1, GRAM_MAX + 1):
        for start in range(len(steps) - size + 1):
            gram = ">".join(step.mode for step in steps[start : start + size])
            last = steps[start + size - 1].op_index
            yield last, f"{pair} {gram}"
            if size <= FLAG_GRAM_MAX:
                yield from ((last, f"{pair} {flag} {gram}") for flag in flags)


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
    "prefill_graph",
    "kv_lora_rank",
    "prefix_chunk",
    "linear_before",
    "attention_chunk_size",
    "encoder_decoder",
)
