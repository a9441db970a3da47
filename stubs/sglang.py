"""The SGLang names that the stubs drive, and what smooths their signatures from release to release.

This file and its two neighbours (sglang_platform, sglang_model) are the only ones that name SGLang module paths.
Where a release lacks a caller, ``Missing`` says so: the step is then unsupported there, never a bug.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from stubs import sglang_flashinfer
from stubs.layer import layer_of
from stubs.refusal import Refused
from stubs.sglang_arguments import gpu_for_drafts, graph_arguments, speculative_arguments
from stubs.world import World

ATTENTION = "sglang.srt.layers.attention"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
KV_DTYPES = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


def kv_torch_dtype(world: World) -> torch.dtype:
    """The dtype of KV in the pool."""
    return KV_DTYPES.get(world.kv_dtype, DTYPES[world.dtype])


def load(path: str) -> ModuleType:
    """Import a module of the target."""
    return importlib.import_module(path)


def find(*places: str) -> Any:
    """The first of ``module:name`` that this release has, else None."""
    for place in places:
        path, name = place.split(":")
        try:
            module = load(path)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("sglang"):
                raise
            continue
        if hasattr(module, name):
            return getattr(module, name)
    return None


def accepted(function: Callable[..., Any], **values: Any) -> dict[str, Any]:
    """Those of ``values`` that ``function`` takes by name: newer releases take more."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in values.items() if name in parameters}


def version() -> str:
    """The target's own version."""
    return str(load("sglang").__version__)


def handed_in() -> tuple[type, ...]:
    """Classes of what the harness makes, in whole or in steps of its own: where one lacks a field, we may be at fault."""
    places = (
        "sglang.srt.server_args:ServerArgs",
        "sglang.srt.configs.model_config:ModelConfig",
        "sglang.srt.model_executor.model_runner:ModelRunner",
        "sglang.srt.managers.schedule_batch:ScheduleBatch",
        "sglang.srt.managers.schedule_batch:Req",
    )
    return tuple(cls for cls in map(find, places) if cls is not None)


# --- configuration ---------------------------------------------------------------------------------------------


def server_args(world: World, model_path: str, draft_path: str) -> Any:
    """SGLang's real ServerArgs for this world. Refused where SGLang turns the combination down."""
    cls = load("sglang.srt.server_args").ServerArgs
    wanted: dict[str, Any] = {
        "model_path": model_path,
        "tokenizer_path": model_path,
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "device": world.device,
        "dtype": world.dtype,
        "attention_backend": world.prefill,
        "prefill_attention_backend": world.prefill,
        "decode_attention_backend": world.decode,
        "page_size": world.page_size,
        "context_length": world.context_len,
        "max_running_requests": world.max_running_requests,
        "max_total_tokens": world.max_total_tokens,
        "mem_fraction_static": 0.3,
        "disable_cuda_graph": True,
        "triton_attention_num_kv_splits": 2,
        "disable_overlap_schedule": not world.overlap,
        "kv_cache_dtype": world.kv_dtype,
        "disable_radix_cache": not world.radix_cache,
        "disable_hybrid_swa_memory": not world.window_tokens,
        "enable_deterministic_inference": bool(world.deterministic),
        "enable_two_batch_overlap": world.wrapper == "tbo",
    }
    wanted |= speculative_arguments(world, draft_path)
    if captures_prefill():
        wanted |= graph_arguments(world)
    try:
        with sglang_flashinfer.blackwell(world.prefill, world.decode), gpu_for_drafts(world):
            return _resolved(cls(**wanted), world)
    except (ValueError, AssertionError, NotImplementedError) as error:
        raise Refused(f"ServerArgs: {error}") from error


def captures_prefill() -> bool:
    """Whether the release captures whole prefill steps, of several requests (0.5.15 on)."""
    phase = find("sglang.srt.model_executor.cuda_graph_config:PhaseConfig")
    return phase is not None and "full_prefill_max_req" in {field.name for field in dataclasses.fields(phase)}


def _resolved(args: Any, world: World) -> Any:
    """``args`` with what SGLang derives from them. ValueError where it would serve other pages than the world's."""
    resolve = getattr(args, "resolve_once", None)
    if resolve is not None:
        resolve()
    view = find("sglang.srt.arg_groups.overrides:resolved_view")
    size = (args if view is None else view(args)).page_size
    if size != world.page_size:
        raise ValueError(f"{world.pair} does not support page_size {world.page_size}: SGLang serves it with {size}")
    return args


def model_config(args: Any, model_path: str, *, is_draft: bool = False) -> Any:
    """SGLang's real ModelConfig of the model at ``model_path`` under those arguments."""
    cls = load("sglang.srt.configs.model_config").ModelConfig
    try:
        return cls.from_server_args(args, model_path=model_path, is_draft_model=is_draft)
    except (ValueError, AssertionError) as error:
        raise Refused(f"ModelConfig: {error}") from error


def one_rank_parallel_state() -> Any:
    """The ParallelState record of a single rank, where the release has one; else None."""
    cls = find("sglang.srt.distributed.parallel_state_wrapper:ParallelState")
    if cls is None:
        return None
    names = inspect.signature(cls).parameters
    values: dict[str, int] = {name: 0 for name in names if name.endswith("_rank") or name == "gpu_id"}
    values.update({name: 1 for name in names if name.endswith("_size")})
    return cls(**values)


def publish(args: Any, config: Any) -> None:
    """Make ``args``, with the ModelConfig ``config``, the process's configuration, by the road this release has."""
    publisher = find("sglang.srt.runtime_context:publish")
    if publisher is not None:
        ranks = find("sglang.srt.runtime_context:SpawnRanks")
        extra = {} if ranks is None else {"ranks": ranks(world_rank=0, gpu_id=0)}
        publisher(args, role="scheduler", **extra)
    setter = find("sglang.srt.server_args:set_global_server_args_for_scheduler")
    if setter is not None and not _is_global(args):
        setter(args)
    _one_rank(args, config)


def tell_of_mla(args: Any, *, use_mla_backend: bool) -> None:
    """Write down whether the model is MLA where this release's ModelRunner does: over ServerArgs' method of that name."""
    runner = load("sglang.srt.model_executor.model_runner")
    if "server_args.use_mla_backend = self.use_mla_backend" in inspect.getsource(runner):  # to 0.5.14
        args.use_mla_backend = use_mla_backend


def _is_global(args: Any) -> bool:
    """Whether modules that ask the older way get ``args`` already: newer releases publish to both."""
    getter = find("sglang.srt.server_args:get_global_server_args")
    try:
        return getter is not None and getter() is args
    except (ValueError, AssertionError):  # nothing is set yet
        return False
    except RuntimeError:  # retired (0.5.20 on): what was published is all there is
        return True


def _one_rank(args: Any, config: Any) -> None:
    """A world of one process, where backends ask the parallel groups and not the configuration for their widths.

    From the release on whose ``publish`` takes ranks, widths follow from the configuration alone.
    """
    if find("sglang.srt.runtime_context:SpawnRanks") is not None:
        return
    start_groups()
    attention = load("sglang.srt.layers.dp_attention")
    if getattr(attention, "_ATTN_TP_SIZE", 1) is None:  # up to 0.5.8 attention has a group of its own
        attention.initialize_dp_attention(server_args=args, model_config=config)


def start_groups() -> None:
    """The parallel groups of a world of one process, where they are not there yet."""
    state = load("sglang.srt.distributed.parallel_state")
    if state.model_parallel_is_initialized():
        return
    if not torch.distributed.is_initialized():
        # An in-process store: no port, so that workers never meet.
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    state.init_distributed_environment(world_size=1, rank=0, local_rank=0, backend="gloo")
    state.initialize_model_parallel()


def no_ngram_embedding() -> Any:
    """The real NgramEmbeddingManager of a model without n-gram embeddings, where the release has one; else None."""
    cls = find("sglang.srt.model_executor.model_runner_components.ngram_embedding_manager:NgramEmbeddingManager")
    return None if cls is None else cls(**{"enabled": False, "table": None, "n": 0, **accepted(cls, k=0)})


def spec_algorithm(name: str) -> Any:
    """SGLang's SpeculativeAlgorithm member; "" is NONE. Refused where the release has no such algorithm."""
    cls = load("sglang.srt.speculative.spec_info").SpeculativeAlgorithm
    if not name:
        return cls.NONE
    try:
        return cls.from_string(name)
    except (ValueError, KeyError) as error:
        raise Refused(f"SpeculativeAlgorithm: {error}") from error


# --- backends --------------------------------------------------------------------------------------------------


def registry() -> dict[str, Callable[[Any], Any]]:
    """SGLang's own attention backend registry: name -> constructor taking a runner."""
    return dict(load(f"{ATTENTION}.attention_registry").ATTENTION_BACKENDS)


def build_backend(name: str, runner: Any) -> Any:
    """One leaf backend by SGLang's registry."""
    known = registry()
    if name not in known:
        raise Refused(f"attention backend {name!r} is not in this release's registry")
    sglang_flashinfer.keep_workspaces_small()
    return known[name](runner)


def build_hybrid(runner: Any, prefill: str, decode: str, around: Callable[[Any], Any] = lambda leaf: leaf) -> Any:
    """The real HybridAttnBackend over two leaves, assembled as SGLang's model runner does (decode first).

    ``around`` makes of a leaf what stands in its place.
    """
    cls = load(f"{ATTENTION}.hybrid_attn_backend").HybridAttnBackend
    decode_backend = around(build_backend(decode, runner))
    prefill_backend = around(build_backend(prefill, runner))
    return cls(model_runner=runner, prefill_backend=prefill_backend, decode_backend=decode_backend)


def radix_attention(world: World, layer_id: int, *, on_draft: bool = False) -> Any:
    """The real RadixAttention layer of this world."""
    cls = load("sglang.srt.layers.radix_attention").RadixAttention
    like = layer_of(world, layer_id, on_draft=on_draft)
    layer = cls(
        num_heads=world.num_heads,
        head_dim=world.head_dim,
        scaling=like.scaling,
        num_kv_heads=world.num_kv_heads,
        v_head_dim=world.v_dim,
        layer_id=layer_id if on_draft else world.attention_ids[layer_id],
        logit_cap=float(like.logit_cap),
        sliding_window_size=like.window or -1,
        use_irope=bool(like.chunk),
        is_cross_attention=like.is_cross,
    )
    if world.kv_scale:  # as SGLang's KV cache quantisation method leaves them on the layer
        layer.k_scale, layer.v_scale = (torch.tensor(scale, device=world.device) for scale in world.kv_scales)
        layer.k_scale_float, layer.v_scale_float = world.kv_scales
    if like.temperature_len:  # the model that has one sets it on the layer
        layer.xai_temperature_len = like.temperature_len
    return layer


@contextlib.contextmanager
def forward_context(backend: Any, forward_batch: Any) -> Iterator[None]:
    """Publish ``backend`` as the one that layers read: in the forward context, or up to 0.5.12 on the batch."""
    context = find("sglang.srt.model_executor.forward_context:forward_context")
    if context is None:
        forward_batch.attn_backend = backend
        yield
        return
    record = load("sglang.srt.model_executor.forward_context").ForwardContext
    with context(record(attn_backend=backend)):
        yield
