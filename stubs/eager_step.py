"""An eager step: its metadata, then every attention layer in turn, in the order of SGLang's eager runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stubs import sglang, sglang_batch, sglang_eager
from stubs.answer import Answer
from stubs.kv_memory import kv_places
from stubs.layer_inputs import LayerInput
from stubs.slots import kv_buffers
from stubs.tap import Tap


def run_layers(
    backend: Any, layers: Sequence[Any], forward_batch: Any, inputs: Sequence[LayerInput], pool: Any = None
) -> list[Tap]:
    """Metadata, then every attention layer in turn, in the order of SGLang's eager runner.

    An idle batch of no rows plans nothing, as there. Where ``pool`` is given, K and V are written to it here, as a
    model's fused kernel does, and the layers are told not to.
    """
    with torch.no_grad(), sglang.forward_context(backend, forward_batch):
        sglang_eager.as_run(forward_batch)
        if forward_batch.batch_size > 0 and sglang_batch.needs_forward_metadata(forward_batch):
            backend.init_forward_metadata(forward_batch)
        taps = []
        for index, (layer, given) in enumerate(zip(layers, inputs, strict=True)):
            q, k, v = _with_padding(given, forward_batch)
            tokens = len(given[0])
            if pool is None:
                taps.append(Tap(index, *given, Answer.of(layer(q, k, v, forward_batch)).used[:tokens]))
                continue
            _write_kv(pool, index, forward_batch.out_cache_loc, k, v)
            before = _versions(pool)
            out = Answer.of(layer(q, k, v, forward_batch, save_kv_cache=False)).used
            taps.append(Tap(index, *given, out[:tokens], stored=_versions(pool) != before))
    return taps


def _with_padding(given: LayerInput, forward_batch: Any) -> LayerInput:
    """A layer's input with rows for the tokens that a batch was padded with: what a model computes of token 0, here ones."""
    missing = len(forward_batch.positions) - max(map(len, given))  # one of them may be short on purpose
    if missing <= 0:
        return given
    q, k, v = (torch.cat([tensor, tensor.new_ones(missing, tensor.shape[1])]) for tensor in given)
    return q, k, v


def _write_kv(pool: Any, layer: int, loc: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    holder = kv_places(pool)[0][0]
    for buffer, new in ((holder.k_buffer[layer], k), (holder.v_buffer[layer], v)):
        buffer[loc] = new.reshape(len(new), *buffer.shape[1:])


def _versions(pool: Any) -> list[int]:
    """How often torch wrote to each buffer: a row that is written once more with what it holds shows in this alone."""
    return [buffer._version for buffer in kv_buffers(pool)]
