"""SGLang's two-batch overlap: its wrapper over three backends, and a step in two halves, each on a backend of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from stubs.layer_inputs import LayerInput
from stubs.refusal import Refused
from stubs.sglang import accepted, find, forward_context, load
from stubs.sglang_batch import needs_forward_metadata
from stubs.tap import Tap

WRAPPER = "sglang.srt.layers.attention.tbo_backend:TboAttnBackend"
STRATEGIES = ("sglang.srt.batch_overlap.operations_strategy", "sglang.srt.operations_strategy")  # as below
PLACES = ("sglang.srt.batch_overlap.two_batch_overlap", "sglang.srt.two_batch_overlap")  # up to 0.5.6 the second
STRATEGY = "_compute_moe_qwen3_layer_operations_strategy_tbo"  # of a model whose attention is not latent


def overlapped_backend(make: Callable[[], Any]) -> Any:
    """SGLang's wrapper: a backend for whole batches and one for each half, all made by ``make``."""
    return _found(WRAPPER).init_new(make)


def run_overlapped(
    backend: Any, layers: Sequence[Any], forward_batch: Any, inputs: Sequence[LayerInput], *, is_fresh: bool = False
) -> list[Tap]:
    """A step's attention layers, one half of the batch after the other in each, as a model interleaves them.

    The split is SGLang's own, as the scheduler asks for it; a half without tokens runs nothing, as in a model.
    ``is_fresh``: the backend has planned nothing yet, though another may have.
    """
    with torch.no_grad(), forward_context(backend, forward_batch):
        split(forward_batch)
        if is_fresh or needs_forward_metadata(forward_batch):
            backend.init_forward_metadata(forward_batch)
        return [_layer(backend, layer, forward_batch, index, inputs[index]) for index, layer in enumerate(layers)]


def halves(backend: Any, forward_batch: Any) -> list[tuple[Any, Any, tuple[int, int]]]:
    """The halves of a batch that was split: the backend of each, its batch, and its rows of the whole."""
    pairs = zip(backend.children, forward_batch.tbo_children, strict=True)
    return [(half, batch, batch.tbo_parent_token_range) for half, batch in pairs]


def _layer(backend: Any, layer: Any, forward_batch: Any, index: int, given: LayerInput) -> Tap:
    outs = []
    for half, batch, (start, end) in halves(backend, forward_batch):
        if end > start:
            q, k, v = (tensor[start:end] for tensor in given)
            with forward_context(half, batch):
                outs.append(layer(q, k, v, batch))
    return Tap(index, *given, torch.cat(outs))


def split(forward_batch: Any) -> None:
    """The halves of ``forward_batch``, by SGLang's split: between requests, or within one that is as long as all others.

    Refused where SGLang's models know no order of operations for them: there no attention runs.
    """
    _refuse_unordered(forward_batch.forward_mode)
    mode, spec_info = forward_batch.forward_mode, forward_batch.spec_info
    width = _function("get_token_num_per_seq")(forward_mode=mode, spec_info=spec_info)
    forward_batch.tbo_split_seq_index = _function("compute_split_seq_index")(
        forward_mode=mode,
        num_tokens=len(forward_batch.positions),
        extend_lens=forward_batch.extend_seq_lens_cpu,
        token_num_per_seq=width,
    )
    forward_batch.tbo_children = None  # of an earlier run of the same step
    prepare = _function("TboForwardBatchPreparer").prepare
    prepare(forward_batch, **accepted(prepare, is_draft_worker=False))


@functools.cache
def _unordered(mode: Any) -> str:
    """SGLang's words where its models have no order of operations for halves of ``mode``, in all releases MIXED; else "".

    They ask for the mode that the scheduler gave the whole batch, not for what the runner of eager steps makes of it.
    """
    module = load(_found(*(f"{place}:OperationsStrategy" for place in STRATEGIES)).__module__)
    family = STRATEGY.removesuffix("layer_operations_strategy_tbo")
    orders = [name for name in vars(module) if name.startswith(family) and name != STRATEGY]
    with patch.multiple(module, **dict.fromkeys(orders, lambda layer: None)):
        try:
            getattr(module, STRATEGY)(SimpleNamespace(is_layer_sparse=True), mode)
        except NotImplementedError as error:
            return f"OperationsStrategy: {error}"
    return ""


def _refuse_unordered(mode: Any) -> None:
    reason = _unordered(mode)
    if reason:
        raise Refused(reason)


def _function(name: str) -> Any:
    return _found(*(f"{place}:{name}" for place in PLACES))


def _found(*places: str) -> Any:
    found = find(*places)
    if found is None:
        raise Refused(f"this release has no {places[0]}")
    return found
