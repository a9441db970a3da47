"""Turns a valid program into one whose last step is run once more with its input corrupted."""

from __future__ import annotations

from dataclasses import replace

from fuzz.choice import Seeded
from fuzz.program import Decode, Extend, Mixed, Program, Verify
from stubs.corruption import corruptions_of

STEPS = (Extend, Mixed, Decode, Verify)


def corrupted(program: Program, seed: int) -> Program:
    """``program`` up to one of its steps, which takes a corruption that such steps have; both are drawn from ``seed``.

    Graphs are left out: what a replay reads was put into its own buffers before. So are models that write K and V. A
    program without a step stays as it is.
    """
    steps = [index for index, op in enumerate(program.ops) if isinstance(op, STEPS)]
    if not steps:
        return program
    choices = Seeded(seed)
    # One kind of op first, then one of that kind: decodes are few, and as much can go wrong in one.
    kind = choices.pick(sorted({program.ops[index].kind for index in steps}))
    last = choices.pick([index for index in steps if program.ops[index].kind == kind])
    world = replace(program.world, graph=0, graph_max=0, prefill_graph=0, save_kv_cache=1)
    return replace(program, world=world, ops=program.ops[: last + 1], corruption=choices.pick(corruptions_of(kind)))
