"""What a target verifies, by speculative algorithm: a draft, and the ForwardBatch that SGLang makes for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from stubs import draft_tree, ngram_tree, sglang_dflash, sglang_dspark, sglang_ngram, sglang_padding, sglang_spec
from stubs.padding import Padding
from stubs.plan import RowPlan
from stubs.tiny_model import VOCAB_SIZE
from stubs.world import World

# Each drafted node's parent, by request; the root has none.
Parents = list[list[int | None]]


def eagle_batch(server: Any, batch: Any, tree: tuple[Any, ...], padding: Padding) -> tuple[Parents, Any]:
    """Of what EAGLE drafts: ``tree`` as its worker has it, the draft's input on ``batch``."""
    built = sglang_spec.build_verify_input(batch, batch.spec_info, tree, server.target, server.draft, server.world)
    requests, target, world = len(batch.seq_lens), server.target, server.world
    parents = [draft_tree.parents(built, request) for request in range(requests)]
    make = partial(sglang_spec.verify_forward_batch, built, batch, target, world)
    if not padding.is_needed:
        return parents, make()
    return parents, sglang_padding.padded_draft(make, batch, target, requests + padding.dead, world)


def modelless_batch(
    server: Any, batch: Any, rows: Sequence[RowPlan], generator: torch.Generator
) -> tuple[Parents, Any]:
    """Of what NGRAM or DFLASH drafts, drawn here: no draft model takes steps."""
    world: World = server.world
    width = world.spec_draft_tokens
    if world.spec_algorithm == "NGRAM":
        drawn = ngram_tree.draw_drafts(len(rows), width, world.spec_topk, generator, VOCAB_SIZE)
        verify_input, forward_batch = sglang_ngram.verify_forward_batch(batch, *drawn, server.target, world)
        return [draft_tree.parents(verify_input, request) for request in range(len(rows))], forward_batch
    tokens = torch.randint(0, VOCAB_SIZE, (len(rows) * width,), generator=generator).to(world.device)
    reserved = [len(row.live.slots) for row in rows]
    forward_batch = sglang_dflash.verify_forward_batch(batch, tokens, reserved, server.target, world)
    return [[None, *range(width - 1)] for _ in rows], forward_batch


def ragged_batch(
    server: Any, batch: Any, rows: Sequence[RowPlan], lens: Sequence[int], generator: torch.Generator
) -> tuple[list[int], Any, Callable[[Any], Any]]:
    """Of what DSPARK drafts, drawn here: how many tokens of each request, and the ForwardBatch.

    ``lens``: how many are asked for, none: all. The last makes the ForwardBatch of a server without graphs, planned on the
    backend that it is given.
    """
    width = server.world.spec_draft_tokens
    tokens = torch.randint(0, VOCAB_SIZE, (len(rows), width), generator=generator).to(server.world.device)
    verify = sglang_dspark.Verify(batch, tokens, lens, [len(row.live.slots) for row in rows], server.world)
    forward_batch, verified = verify.prepared(server.target)
    return verified, forward_batch, partial(verify.eagerly, server.target)
