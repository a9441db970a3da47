"""SGLang's padding of a batch under data-parallel attention: to as many rows as the fullest rank has, or as an extend."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import wraps
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

from stubs.sglang import load
from stubs.sglang_batch import forward_batch

BATCHES = "sglang.srt.model_executor.forward_batch_info"


def padded_batch(batch: Any, runner: Any, rows: int, *, beside_extend: bool) -> Any:
    """The ForwardBatch of a rank whose gather takes ``rows`` tokens of it, by SGLang's own padding before an eager run.

    ``batch`` is the ScheduleBatch; ``beside_extend``: some rank extends, for which SGLang may relabel this one's step.
    The gather is of this rank alone, which SGLang knows, too: what others hold is no affair of attention.
    """
    batch.global_num_tokens = [rows]
    batch.global_num_tokens_for_logprob = [rows]
    batch.is_extend_in_batch = beside_extend
    with _no_pinning():
        padded = forward_batch(batch, runner)
        padded.prepare_mlp_sync_batch(runner)
    return padded


@contextlib.contextmanager
def _no_pinning() -> Iterator[None]:
    """Host memory is pinned for a GPU alone."""
    if torch.cuda.is_available():
        yield
        return
    here = ModuleType(torch.__name__, torch.__doc__)
    here.__dict__.update(vars(torch))
    here.tensor = _unpinned(torch.tensor)  # type: ignore[attr-defined]
    with patch.object(load(BATCHES), "torch", here):
        yield


def _unpinned(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(make)
    def plain(*args: Any, **options: Any) -> torch.Tensor:
        options.pop("pin_memory", None)
        return make(*args, **options)

    return plain
