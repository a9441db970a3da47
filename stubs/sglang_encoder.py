"""Models with an encoder beside the decoder, as Mllama is: their config, and what SGLang makes of their batches.

A request begins with its encoder's tokens, and SGLang's batches count without them: its own methods take them out.
"""

from __future__ import annotations

import inspect
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from stubs.sglang import load

ARCHITECTURE = "MllamaForConditionalGeneration"


def give_encoder(record: Any, tokens: int) -> None:
    """Let a Req begin with ``tokens`` of an encoder, as the processor of an image says of it; 0: it is of text alone."""
    if tokens:
        record.multimodal_inputs = _schedule_batch().MultimodalInputs(mm_items=[], num_image_tokens=tokens)


def mark_extend(record: Any, start: int, end: int) -> None:
    """Tell a Req that it extends from ``start`` known tokens to ``end``, in the words of this release."""
    record.prefix_indices = torch.empty(start, dtype=torch.int64)
    if hasattr(record, "set_extend_range"):  # 0.5.15 to 0.5.21
        record.set_extend_range(start, end)
    elif hasattr(record, "extend_input_len"):  # before
        record.extend_input_len = end - start
        record.extend_logprob_start_len = 0
    else:
        record.prefix_len, record.extend_end = start, end


def without_encoders(batch: Any, encoders: Sequence[int], counts: Sequence[int]) -> None:
    """Have SGLang take the encoders' tokens out of a ScheduleBatch that extends: ``prepare_encoder_info_extend``.

    ``counts`` are each request's new tokens but those; the batch's input ids are theirs alone already.
    """
    parts = zip(batch.reqs, encoders, batch.prefix_lens, batch.input_ids.split(list(counts)), strict=True)
    ids = [[0] * (encoder if not known else 0) + own.tolist() for _, encoder, known, own in parts]
    for record, known, count in zip(batch.reqs, batch.prefix_lens, batch.extend_lens, strict=True):
        mark_extend(record, known, known + count)
    lengths = batch.seq_lens_cpu.tolist()
    if _takes_arrays():
        ids = [array("q", one) for one in ids]
    batch.prepare_encoder_info_extend(ids, lengths)
    if _takes_arrays():
        batch.input_ids = batch.prefill_input_ids_cpu.to(batch.device)  # as the worker's resolve_forward_inputs does
    if not _sums_before():
        batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())


def tell_encoders(batch: Any, encoders: Sequence[int]) -> None:
    """What a ScheduleBatch that decodes has of its requests' encoders; nothing of them is computed there."""
    batch.encoder_lens = torch.tensor(encoders, dtype=torch.int64, device=batch.device)
    batch.encoder_lens_cpu = list(encoders)
    batch.encoder_out_cache_loc = torch.empty(0, dtype=torch.int64, device=batch.device)
    batch.prepare_encoder_info_decode()


def _schedule_batch() -> Any:
    return load("sglang.srt.managers.schedule_batch")


@cache
def _takes_arrays() -> bool:
    """Whether a batch's tokens are arrays, which stay on the host at first (0.5.13 on)."""
    method = _schedule_batch().ScheduleBatch.prepare_encoder_info_extend
    return "prefill_input_ids_cpu" in inspect.getsource(method)


@cache
def _sums_before() -> bool:
    """Whether a batch's sum of lengths is taken before the encoders' tokens are taken out of them (to 0.5.16 at least)."""
    return "self.seq_lens_sum = sum(seq_lens)" in inspect.getsource(_schedule_batch().ScheduleBatch.prepare_for_extend)
