"""Starts SGLang's own ModelRunner on any supported release; the third of the files that name SGLang module paths."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any

import torch

from stubs import sglang
from stubs.refusal import Refused

# How SGLang says no while it picks attention backends; an AttributeError or a TypeError is never a refusal.
REFUSALS = (AssertionError, ValueError, NotImplementedError)
# The innermost frame that makes such an error a refusal rather than a fault: files, and to 0.5.15 a runner's method.
REFUSING_FILES = ("attention_registry.py", "attention_backend_setup.py")
REFUSING_FUNCTION = "_get_attention_backend_from_str"
# Never dialled: torch.distributed runs over an in-process store. SGLang only wants a number.
UNUSED_PORT = 1
# Valid share of memory; the pool's size comes from max_total_tokens.
MEM_FRACTION = 0.3
# What SGLang keeps on a runner for its attention backends, by release.
BACKEND_FIELDS = ("attn_backend", "decode_attn_backend", "decode_attn_backend_group")


def start_process(args: Any, config: Any) -> None:
    """Make ``args`` this process's configuration, as a scheduler process does at its start.

    May be called again for other arguments: what the ones before left is stopped first.
    """
    stop_process()
    publish = sglang.find("sglang.srt.runtime_context:publish")
    if publish is not None:
        ranks = sglang.find("sglang.srt.runtime_context:SpawnRanks")
        publish(args, role="scheduler", **({} if ranks is None else {"ranks": ranks(world_rank=0, gpu_id=0)}))
    else:
        sglang.load("sglang.srt.server_args").set_global_server_args_for_scheduler(args)
    _init_torch_distributed()
    start_groups = sglang.find("sglang.srt.distributed.bootstrap:init_parallel_runtime")
    if start_groups is not None:  # from 0.5.21 on; before, the runner does this itself
        start_groups(server_args=args, device=args.device, dist_port=UNUSED_PORT)
        sglang.load("sglang.srt.distributed.bootstrap").init_layer_runtime(model_config=config)


def stop_process() -> None:
    """Drop the process-wide configuration and parallel groups; harmless when there are none."""
    sglang.load("sglang.srt.distributed.parallel_state").destroy_model_parallel()
    reset = sglang.find("sglang.srt.runtime_context:reset_context")
    if reset is not None:
        reset()


def make_model_runner(args: Any, config: Any, **given: Any) -> Any:
    """A started ModelRunner: weights loaded, pools allocated, attention backends built by SGLang.

    ``given`` are further arguments of ModelRunner's constructor (``is_draft_worker`` and the shared pools).
    Raises Refused where SGLang turns the backends down; other errors propagate.
    """
    if hasattr(args, "disable_piecewise_cuda_graph"):
        # 0.5.11 to 0.5.13 capture this graph on a CPU too, and torch.cpu has no graph_pool_handle.
        args.disable_piecewise_cuda_graph = True
    cls = sglang.load("sglang.srt.model_executor.model_runner").ModelRunner
    parameters = inspect.signature(cls.__init__).parameters
    values: dict[str, Any] = {
        "model_config": config,
        "mem_fraction_static": MEM_FRACTION,
        "gpu_id": 0,
        "nccl_port": UNUSED_PORT,
        "server_args": args,
        # One process: rank 0 of 1 in every parallel dimension. Until 0.5.15 each is an argument, until 0.5.20 a record.
        **{name: 0 for name in parameters if name.endswith("_rank")},
        **{name: 1 for name in parameters if name.endswith("_size")},
        **sglang.accepted(cls.__init__, ps=sglang.one_rank_parallel_state()),
        **given,
    }
    runner = _starting(lambda: cls(**values))
    if hasattr(runner, "alloc_memory_pool"):  # until 0.5.13 the constructor does all of this
        runner.alloc_memory_pool()
        _starting(runner.init_attention_backends)
        runner.init_cuda_graphs()
    return runner


def make_attn_backend(runner: Any) -> Any:
    """A fresh attention backend over the runner's pools, assembled by the runner's own method; the runner keeps its."""
    kept = {name: getattr(runner, name) for name in BACKEND_FIELDS if hasattr(runner, name)}
    try:
        (getattr(runner, "init_attention_backends", None) or runner.init_attention_backend)()
        return runner.attn_backend
    finally:
        for name, value in kept.items():
            setattr(runner, name, value)


def attention_layers(model: torch.nn.Module) -> list[Any]:
    """The model's RadixAttention modules in layer order."""
    cls = sglang.load("sglang.srt.layers.radix_attention").RadixAttention
    return sorted((module for module in model.modules() if isinstance(module, cls)), key=lambda layer: layer.layer_id)


def skip_empty_rotary(model: torch.nn.Module) -> None:
    """Let a step without tokens through the rotary embedding: SGLang's CPU form of it cannot reshape 0 rows.

    On a GPU another form runs, and a CPU rank is never idle, so that this is none of the faults sought.
    """
    for module in model.modules():
        if hasattr(module, "cos_sin_cache"):
            module.forward = _unless_empty(module.forward)


def _unless_empty(rotate: Callable[..., Any]) -> Callable[..., Any]:
    def forward(positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if positions.numel() == 0:
            return query, key
        return rotate(positions, query, key, *args, **kwargs)

    return forward


def _init_torch_distributed() -> None:
    """One world of one process over an in-process store: no port, so that workers never meet. Once per process."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


def _starting(make: Callable[[], Any]) -> Any:
    """Run ``make``; an error raised in the module that picks attention backends is a refusal, others propagate."""
    try:
        return make()
    except REFUSALS as error:
        innermost = traceback.extract_tb(error.__traceback__)[-1]
        if innermost.filename.endswith(REFUSING_FILES) or innermost.name == REFUSING_FUNCTION:
            raise Refused(f"ModelRunner: {error}") from error
        raise
