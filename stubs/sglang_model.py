"""Starts SGLang's own ModelRunner on any supported release; one of the files that name SGLang module paths."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from stubs.refusal import Refused

# How SGLang says no to settings it was given. AttributeError, KeyError and TypeError are never a refusal.
REFUSALS = (AssertionError, ValueError, NotImplementedError, ImportError)
# The modules whose innermost frame makes an error during the start of attention backends a refusal.
REFUSING_MODULES = ("attention_registry", "attention_backend_setup")
GPU_ID = 0
# Never dialled: torch.distributed runs over an in-process store. SGLang only wants a number.
UNUSED_PORT = 1
# Share of memory for the KV pool; the pool is sized by max_total_tokens, so this only has to be a valid share.
MEM_FRACTION = 0.3


def make_server_args(settings: Mapping[str, Any]) -> Any:
    """SGLang's ServerArgs, resolved. Raises Refused with SGLang's message where it rejects ``settings``."""
    server_args = import_module("sglang.srt.server_args").ServerArgs
    return _refusing(lambda: server_args(**settings))


def make_model_config(server_args: Any, model_path: str, *, is_draft: bool) -> Any:
    """SGLang's ModelConfig of the model at ``model_path``."""
    model_config = import_module("sglang.srt.configs.model_config").ModelConfig
    return _refusing(lambda: model_config.from_server_args(server_args, model_path=model_path, is_draft_model=is_draft))


def start_process(server_args: Any, model_config: Any) -> None:
    """Make ``server_args`` this process's configuration, as a scheduler process does at its start.

    May be called again for another configuration: what the one before left is stopped first.
    """
    stop_process()
    _publish(server_args)
    _init_torch_distributed()
    bootstrap = _optional("sglang.srt.distributed.bootstrap")
    if bootstrap is not None and hasattr(bootstrap, "init_parallel_runtime"):
        bootstrap.init_parallel_runtime(server_args=server_args, device=server_args.device, dist_port=UNUSED_PORT)
        bootstrap.init_layer_runtime(model_config=model_config)


def stop_process() -> None:
    """Drop the process-wide configuration and parallel groups; harmless when there are none."""
    parallel = import_module("sglang.srt.distributed.parallel_state")
    parallel.destroy_model_parallel()
    context = _optional("sglang.srt.runtime_context")
    if context is not None and hasattr(context, "reset_context"):
        context.reset_context()


def make_model_runner(server_args: Any, model_config: Any, **given: Any) -> Any:
    """A started ModelRunner: weights loaded, pools allocated, attention backends built by SGLang.

    ``given`` are further arguments of ModelRunner's constructor (``is_draft_worker`` and the shared pools).
    """
    runner_class = import_module("sglang.srt.model_executor.model_runner").ModelRunner
    accepted = inspect.signature(runner_class.__init__).parameters
    values = {
        "model_config": model_config,
        "mem_fraction_static": MEM_FRACTION,
        "gpu_id": GPU_ID,
        "nccl_port": UNUSED_PORT,
        "server_args": server_args,
        **_single_process(accepted),
        **given,
    }
    if "ps" in accepted:
        values["ps"] = _parallel_state()
    runner = _starting(lambda: runner_class(**values))
    if hasattr(runner, "alloc_memory_pool"):  # until 0.5.13 the constructor did all of this
        runner.alloc_memory_pool()
        _starting(runner.init_attention_backends)
        runner.init_cuda_graphs()
    return runner


def radix_attention_class() -> type:
    return import_module("sglang.srt.layers.radix_attention").RadixAttention


def _publish(server_args: Any) -> None:
    context = _optional("sglang.srt.runtime_context")
    if context is not None and hasattr(context, "publish"):
        ranks = getattr(context, "SpawnRanks", None)
        extra = {} if ranks is None else {"ranks": ranks(world_rank=0, gpu_id=GPU_ID)}
        context.publish(server_args, role="scheduler", **extra)
        return
    # Until 0.5.16 the runner publishes too, but modules read the arguments before it does.
    import_module("sglang.srt.server_args").set_global_server_args_for_scheduler(server_args)


def _init_torch_distributed() -> None:
    """One world of one process over an in-process store: no port, so that workers never meet. Once per process."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


def _parallel_state() -> Any:
    state = import_module("sglang.srt.distributed.parallel_state_wrapper").ParallelState
    names = inspect.signature(state).parameters
    return state(**_single_process(names), **({"gpu_id": GPU_ID} if "gpu_id" in names else {}))


def _single_process(names: Mapping[str, Any]) -> dict[str, int | None]:
    """Ranks 0 of sizes 1 for every parallel dimension among ``names``; no data parallelism."""
    values: dict[str, int | None] = {name: 0 for name in names if name.endswith("_rank")}
    values.update({name: 1 for name in names if name.endswith("_size")})
    return values


def _optional(name: str) -> ModuleType | None:
    return import_module(name) if find_spec(name) is not None else None


def _refusing(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except REFUSALS as error:
        raise Refused(_reason(error)) from error


def _starting(make: Callable[[], Any]) -> Any:
    """Run ``make``; an error raised in the module that picks attention backends is a refusal, others propagate."""
    try:
        return make()
    except REFUSALS as error:
        innermost = traceback.extract_tb(error.__traceback__)[-1].filename
        if innermost.rsplit("/", 1)[-1].removesuffix(".py") in REFUSING_MODULES:
            raise Refused(_reason(error)) from error
        raise


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text or f"{type(error).__name__} without a message"
