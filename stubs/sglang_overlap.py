"""SGLang's two-batch overlap: its wrapper over three backends, and a step in two halves, each on a backend of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stubs.layer_inputs import LayerInput
from stubs.refusal import Refused
from stubs.sglang import accepted, find, forward_context
from stubs.sglang_batch import needs_forward_metadata
from stubs.tap import Tap

WRAPPER = "sglang.srt.layers.attention.tbo_backend:TboAttnBackend"
PLACES = ("sglang.srt.batch_overlap.two_batch_overlap", "sglang.srt.two_batch_overlap")  # up to 0.5.6 the second


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
    """The halves of ``forward_batch``, by SGLang's split: between requests, or within one that is as long as all others."""
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


def _function(name: str) -> Any:
    return _found(*(f"{place}:{name}" for place in PLACES))


def _found(*places: str) -> Any:
    found = find(*places)
    if found is None:
        raise Refused(f"this release has no {places[0]}")
    return found
