"""What a server is told of speculative decoding, and the device that SGLang's check of it is shown."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any
from unittest.mock import patch

from stubs.sglang_modules import present
from stubs.speculation import BLOCKS
from stubs.world import World

HOOK = "sglang.srt.arg_groups.speculative_hook"
GPU_CHECKS = {"NGRAM": "_handle_ngram", "DFLASH": "_handle_dflash", "DSPARK": "_handle_dspark"}


def speculative_arguments(world: World, draft_path: str) -> dict[str, Any]:
    """Arguments of ServerArgs; those that SGLang derives for an algorithm are left to it. Empty without speculation."""
    if not world.is_speculative:
        return {}
    told = {
        "speculative_algorithm": world.spec_algorithm,
        "speculative_num_draft_tokens": world.spec_draft_tokens,
        "speculative_attention_mode": world.spec_mode,
    }
    if world.spec_algorithm == "NGRAM":
        return {**told, "speculative_ngram_max_bfs_breadth": world.spec_topk}
    if world.spec_algorithm in BLOCKS:
        return {**told, "speculative_draft_model_path": draft_path}
    return {
        **told,
        "speculative_draft_model_path": draft_path,
        "speculative_num_steps": world.spec_steps,
        "speculative_eagle_topk": world.spec_topk,
    }


def graph_arguments(world: World) -> dict[str, Any]:
    """Arguments of ServerArgs for graphs of whole prefill steps; empty without them. Others are captured unasked."""
    if not world.prefill_graph:
        return {}
    return {"cuda_graph_backend_prefill": "full", "cuda_graph_max_bs_prefill": world.prefill_graph}


@contextlib.contextmanager
def gpu_for_drafts(world: World) -> Iterator[None]:
    """While a server's arguments are checked: the check of an algorithm that is served on a GPU alone is shown one."""
    place, name = _check_of(world)
    check = getattr(place, name, None)
    if check is None or world.device != "cpu":
        yield
        return

    def checked_on_gpu(args: Any) -> None:
        _tell_device(place, args, "cuda")
        try:
            check(args)
        finally:
            _tell_device(place, args, world.device)

    with patch.object(place, name, checked_on_gpu):
        yield


def _check_of(world: World) -> tuple[Any, str]:
    """Where SGLang checks this algorithm's arguments: in a module of its own (0.5.13 on), or in ServerArgs."""
    name = GPU_CHECKS.get(world.spec_algorithm)
    if name is None:
        return None, ""
    for hook in present(HOOK):
        return hook, name
    return import_module("sglang.srt.server_args").ServerArgs, "_handle_speculative_decoding"


def _tell_device(place: Any, args: Any, device: str) -> None:
    """By SGLang's own means: it declares what it makes of its arguments (0.5.19 on), or writes it over them."""
    declare = getattr(place, "declare_resolution", None)
    if declare is None:
        args.device = device
    else:
        declare(args, "device of a check", device=device)
