"""SGLang's padding of a batch under data-parallel attention: to as many rows as the fullest rank has, or as an extend."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from stubs.refusal import Refused
from stubs.sglang import accepted, load, start_groups
from stubs.sglang_batch import forward_batch
from stubs.sglang_flashinfer import kept_on_cpu
from stubs.world import World

BATCHES = "sglang.srt.model_executor.forward_batch_info"


def padded_batch(batch: Any, runner: Any, rows: int, world: World, *, beside_extend: bool) -> Any:
    """The ForwardBatch of a rank whose gather takes ``rows`` tokens of it, by SGLang's own padding before an eager run.

    ``batch`` is the ScheduleBatch; ``beside_extend``: some rank extends, for which SGLang may relabel this one's step.
    The gather is of this rank alone, which SGLang knows, too: what others hold is no affair of attention. Refused where the
    release runs no rank's step as an extend.
    """
    if beside_extend:
        _check_relabels()
    batch.is_extend_in_batch = beside_extend
    return padded_by(lambda: forward_batch(batch, runner), batch, runner, rows, world)


def padded_by(make: Callable[[], Any], batch: Any, runner: Any, requests: int, world: World) -> Any:
    """The ForwardBatch that ``make`` makes of ``batch``, padded as above to ``requests``, of as many tokens each as it has.

    SGLang knows by the spec input how many those are.
    """
    if world.runner == "real":
        raise Refused(
            "SGLang's own runner pads by itself: steps of a rank among several are driven on the fake one alone"
        )
    if world.linear_before:
        raise Refused("padded steps of a model whose linear layers come first are not driven yet")
    batch.global_num_tokens = [requests]
    batch.global_num_tokens_for_logprob = [requests]
    _know_rank(runner)
    with kept_on_cpu(load(BATCHES)):  # which pins host memory for a GPU
        padded = make()
        padded.prepare_mlp_sync_batch(runner)
    return padded


def padded_draft(make: Callable[[], Any], batch: Any, runner: Any, requests: int, world: World) -> Any:
    """The same of what a speculative worker prepares: up to 0.5.12 it plans metadata first, and no runner plans it again.

    There workers say so where they call the runner (skip_attn_backend_init), later ones tell the batch.
    """
    padded = padded_by(make, batch, runner, requests, world)
    if not hasattr(padded, "needs_forward_metadata_init"):
        padded.needs_forward_metadata_init = lambda: False
    return padded


def _check_relabels() -> None:
    """Up to 0.5.13 ranks are padded to one length only where none extends: a rank runs what it has.

    0.5.14 and 0.5.15 make an exception of models with linear layers, and have no rows for idle ranks of others.
    """
    choose = load("sglang.srt.layers.dp_attention").DpPaddingMode.get_dp_padding_mode
    if "max_len_with_idle" not in inspect.getsource(choose):  # in capitals in these two
        raise Refused("this release runs no rank's decode as an extend because another rank extends")


def _know_rank(runner: Any) -> None:
    """From 0.5.9 to 0.5.19 a rank is told its place among those that share attention by a call of its own."""
    ranks = load("sglang.srt.layers.dp_attention")
    if getattr(ranks, "_ATTN_DP_SIZE", 1) is None:
        start_groups()
        tell = ranks.initialize_dp_attention
        tell(**accepted(tell, server_args=runner.server_args, model_config=runner.model_config))
