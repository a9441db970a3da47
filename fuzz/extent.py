"""How long things are: lengths of prompts worth trying in a world, and what an op costs in tokens."""

from __future__ import annotations

from fuzz.program import Decode, Extend, Idle, Mixed, Op, Verify
from fuzz.request import input_max
from stubs.world import World

# Keys that a program of SGLang's Triton kernels takes at once: decode 32 or 64, extend 64.
BLOCKS = (32, 64)


def lengths_of(world: World) -> tuple[int, ...]:
    """Lengths where sizes turn over: around pages, the window or chunk, kernels' blocks, the longest prompt; 1 comes first."""
    page, window, most = world.page_size, world.local_span, input_max(world)
    points = {1, page - 1, page, page + 1, 2 * page, 2 * page + 1, window - 1, window, window + 1, most - 1, most}
    points |= {edge + offset for edge in BLOCKS for offset in (-1, 0, 1)}
    return tuple(sorted(length for length in points if 1 <= length <= most))


def tokens_of(op: Op, world: World) -> int:
    """Query tokens an op puts through attention."""
    match op:
        case Extend():
            return sum(row.tokens - (0 if row.cached else row.encoder) for row in op.rows)
        case Mixed():
            return sum(row.tokens for row in op.rows) + len(op.requests)
        case Decode():
            return len(op.requests) + op.dead
        case Idle():
            return op.dead
        case Verify() if op.verify_lens:
            return sum(op.verify_lens)
        case Verify():
            drafted = world.spec_topk * (world.spec_steps - 1) * op.draft_decode
            padded = world.spec_draft_tokens * (1 + op.draft_extend)
            return len(op.requests) * (padded + drafted) + op.dead * padded
    return 0
