"""SGLang's n-gram verify steps: what its worker makes of a corpus' drafts, without the corpus."""

from __future__ import annotations

from typing import Any

import torch

from stubs.kernels.ngram_tree import reconstruct_indices_from_tree_mask
from stubs.sglang import load
from stubs.sglang_batch import forward_batch, forward_mode
from stubs.sglang_spec import bare_worker
from stubs.world import World

WORKER = "sglang.srt.speculative.ngram_worker:NGRAMWorker"


def verify_forward_batch(
    batch: Any, tokens: torch.Tensor, mask: torch.Tensor, target: Any, world: World
) -> tuple[Any, Any]:
    """The verify input of ``batch`` and its ForwardBatch: from SGLang's own worker, on the drafts given.

    ``tokens`` int64 [B * width], ``mask`` uint8 [B * width * width]: see ``stubs.ngram_tree``.
    """
    cls = load("sglang.srt.speculative.ngram_info").NgramVerifyInput
    if hasattr(cls, "prepare_for_verify"):
        _fill_by_hand(batch, tokens, mask, cls, world)
    else:
        _fill_by_worker(batch, tokens, mask, target, world)
    return batch.spec_info, forward_batch(batch, target)


def verify_input_to_capture(world: World, mask: torch.Tensor) -> Any:
    """The input that SGLang's decode runner captures with: a mask of its own, no draft."""
    cls = load("sglang.srt.speculative.ngram_info").NgramVerifyInput
    return cls(None, mask, None, None, None, None, world.spec_draft_tokens)  # names changed, places did not


def _fill_by_worker(batch: Any, tokens: torch.Tensor, mask: torch.Tensor, target: Any, world: World) -> None:
    """From 0.5.14 on the worker only prepares: its own method runs, the corpus' answer put in its place."""
    drafts = tokens.numpy(), mask.numpy()
    worker = bare_worker(
        WORKER,
        model_runner=target,
        device=world.device,
        draft_token_num=world.spec_draft_tokens,
        max_batch_size=world.max_running_requests,
        enable_overlap=bool(world.overlap),
        page_size=world.page_size,
        _prepare_draft_tokens=lambda batch: drafts,
    )
    worker._init_preallocated_tensors()
    worker._prepare_for_speculative_decoding(batch)


def _fill_by_hand(batch: Any, tokens: torch.Tensor, mask: torch.Tensor, cls: Any, world: World) -> None:
    """Up to 0.5.13 preparing is one with allocating, and with a GPU: the same fields, on the slots that the rows have."""
    size, width, device = len(batch.seq_lens), world.spec_draft_tokens, world.device
    squares = mask.view(size, width, width).bool()
    lengths: list[int] = batch.seq_lens.tolist()
    full = [
        torch.cat([torch.ones(width, length, dtype=torch.bool), square], dim=1)
        for length, square in zip(lengths, squares)
    ]
    links = [torch.empty(size, width, dtype=torch.int64, device=device) for _ in range(3)]
    positions = torch.empty(size * width, dtype=torch.int64, device=device)
    reconstruct_indices_from_tree_mask(mask.to(device), batch.seq_lens, positions, *links, size, width)
    rows = batch.req_to_token_pool.req_to_token[batch.req_pool_indices]
    batch.forward_mode = forward_mode("TARGET_VERIFY")
    batch.input_ids = tokens.to(device)
    batch.out_cache_loc = torch.cat([row[at : at + width] for row, at in zip(rows, lengths)]).to(torch.int64)
    cells = torch.cat([cells.flatten() for cells in full]).to(device)
    batch.spec_info = cls(batch.input_ids, cells, positions, *links, width)
