"""SGLang's DFLASH verify steps: a block of drafted tokens a request, prepared as its worker does, without the draft model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from stubs.refusal import Refused
from stubs.sglang import accepted, find, load
from stubs.sglang_batch import worker_batch
from stubs.world import World

INFO = "sglang.srt.speculative.dflash_info:DFlashVerifyInput"
WORKER = "sglang.srt.speculative.dflash_worker_v2:DFlashWorkerV2"


def verify_forward_batch(batch: Any, tokens: torch.Tensor, reserved: list[int], target: Any, world: World) -> Any:
    """The ForwardBatch that verifies ``batch``, by SGLang's own preparation.

    ``tokens`` int64 [B * width] on device; ``reserved`` are the slots that each request's row holds: what the host goes by
    where it is not told of lengths.
    """
    cls, width = find(INFO), world.spec_draft_tokens
    if cls is None or find(WORKER) is None:
        raise Refused("this release prepares DFLASH's verify, if it has it, in the step that allocates for it")
    positions = batch.seq_lens[:, None] + torch.arange(width, device=world.device)
    rows = batch.req_to_token_pool.req_to_token[batch.req_pool_indices]
    batch.out_cache_loc = rows.gather(1, positions).to(torch.int64).flatten()
    verify_input = cls(draft_token=tokens, positions=positions.flatten(), draft_token_num=width)
    # The host's lengths are upper bounds: with the block, or all that is reserved.
    host = torch.tensor(reserved, dtype=torch.int32) if batch.seq_lens_cpu is None else batch.seq_lens_cpu + width
    batch.seq_lens_cpu, batch.seq_lens_sum = host, int(host.sum())
    prepare = verify_input.prepare_for_verify
    # Its runner plans metadata then; else SGLang plans here, and the runner, which is not told of it, once more.
    deferred = accepted(prepare, defer_metadata_init=True)
    return prepare(worker_batch(batch), SimpleNamespace(model_runner=target), **deferred)[0]


def verify_input_to_capture(world: World, mask: torch.Tensor, backend: Any) -> Any:
    """The input that SGLang's decode runner captures with: a mask where its own rule builds one for ``backend``."""
    policy = load("sglang.srt.speculative.dflash_utils").resolve_dflash_verify_mask_policy
    cls = find(INFO)
    _, builds_mask = policy(backend)
    values = {"draft_token": None, "positions": None, "draft_token_num": world.spec_draft_tokens}
    return cls(**values, custom_mask=mask if builds_mask else None)
