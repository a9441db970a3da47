"""SGLang's wrapper of models that have linear layers beside attention: over both halves, with the linear layers' own planning.

The linear layers themselves are not run: their kernels are none that run on a CPU here. Their backend plans each batch, over
its own slots in SGLang's pool of request rows.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from stubs.refusal import Refused
from stubs.sglang import accepted, build_hybrid, find, kv_torch_dtype, load
from stubs.sglang_flashinfer import kept_on_cpu
from stubs.world import World

ATTENTION = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
POOL = "sglang.srt.mem_cache.memory_pool:HybridReqToTokenPool"
STATES = "sglang.srt.configs.mamba_utils"
KV_POOL = "sglang.srt.mem_cache.memory_pool:HybridLinearKVPool"
LAYER = 99  # of the one linear layer that is behind those of attention
# Of Mamba 2 and attention in any order, and served with any backend. Granite 4's; from 0.5.9 on.
ARCHITECTURE = "GraniteMoeHybridForCausalLM"
CONFIG = "sglang.srt.configs.granitemoehybrid:GraniteMoeHybridConfig"
STATE = {"tp_world_size": 1, "intermediate_size": 8, "n_groups": 1, "num_heads": 2, "head_dim": 4, "state_size": 4}


def request_pool(world: World, row_width: int) -> Any:
    """The real HybridReqToTokenPool: rows as any has, and a slot of linear state for each request."""
    cls, shape, params = find(POOL), find(f"{STATES}:Mamba2StateShape"), find(f"{STATES}:Mamba2CacheParams")
    if None in (cls, shape, params):
        raise Refused("this release has no pool of request rows with linear state")
    named, layers = {**STATE, "conv_kernel": 4}, list(world.linear_ids) or [LAYER]
    values = {
        "size": world.max_running_requests,
        "mamba_size": world.max_running_requests + 1,
        "mamba_spec_state_size": world.max_running_requests + 1,
        "max_context_len": row_width,
        "device": world.device,
        "enable_memory_saver": False,
        "cache_params": params(shape=shape.create(**accepted(shape.create, **named)), layers=layers),
        "mamba_layer_ids": layers,
        "enable_mamba_extra_buffer": False,
        "speculative_num_draft_tokens": world.spec_draft_tokens or None,
        "speculative_eagle_topk": world.spec_topk or None,
        "enable_overlap_schedule": bool(world.overlap),
    }
    # Up to 0.5.19 what drafts need of it is put on "cuda" whatever the device is.
    with kept_on_cpu(load(POOL.partition(":")[0])):
        return cls(**accepted(cls.__init__, **values))


def kv_pool(world: World, request_rows: Any) -> Any:
    """The real HybridLinearKVPool: KV of the layers of attention alone, found by their numbers in the model."""
    cls = find(KV_POOL)
    if world.v_head_dim:
        raise Refused("SGLang's pool for models with linear layers has one head dim for keys and values")
    return cls(
        size=world.max_total_tokens,
        dtype=kv_torch_dtype(world),
        page_size=world.page_size,
        head_num=world.num_kv_heads,
        head_dim=world.head_dim,
        full_attention_layer_ids=list(world.attention_ids),
        device=world.device,
        mamba_pool=request_rows.mamba_pool,
        **accepted(cls.__init__, enable_kvcache_transpose=False, enable_kv_cache_copy=False),
    )


def config_fields(world: World) -> dict[str, Any]:
    """What the config.json of a model says whose linear layers come first."""
    hidden = world.num_heads * world.head_dim
    kinds = ["attention" if layer in world.attention_ids else "mamba" for layer in range(world.total_layers)]
    return {
        "model_type": "granitemoehybrid",
        "num_hidden_layers": world.total_layers,
        "layer_types": kinds,
        "mamba_expand": 2,
        "mamba_n_heads": 2,
        "mamba_d_head": hidden,
        "mamba_n_groups": 1,
        "mamba_d_state": 4,
    }


def check_known(config: Any) -> None:
    """Raise Refused where the release does not know a model of ``config``, a ModelConfig, for one with linear layers."""
    known = find(CONFIG)
    if known is None or not isinstance(config.hf_config, known):
        raise Refused(
            "this release knows no Granite 4, whose linear layers may come before its first layer of attention"
        )


def mamba_config(model_config: Any) -> Any:
    """The config of a model with Mamba 2 layers, as ModelRunner answers for it up to 0.5.15; None of any other."""
    known = find(CONFIG)
    return model_config.hf_config if known is not None and isinstance(model_config.hf_config, known) else None


def linear_backend(runner: Any) -> Any:
    """The wrapper over the two halves' and over the linear layers' backend; the layers that run are all of attention.

    Up to 0.5.15 SGLang wraps each half, later what joins them.
    """
    world = runner.world
    cls, leaf = find(f"{ATTENTION}:HybridLinearAttnBackend"), _leaf()

    def wrapped(full: Any) -> Any:
        return cls(full, leaf(runner), list(world.attention_ids))

    if _wraps_whole():
        return wrapped(build_hybrid(runner, world.prefill, world.decode))
    return build_hybrid(runner, world.prefill, world.decode, around=wrapped)


def _leaf() -> Any:
    """The backend of linear layers: Mamba 2's, or where that wants such a model (to 0.5.18) what plans for all of them."""
    leaf = find(f"{ATTENTION}:Mamba2AttnBackend")
    wants_model = leaf is None or "mamba2_config" in inspect.getsource(leaf.__init__)
    return find(f"{ATTENTION}:MambaAttnBackendBase") if wants_model else leaf


def _wraps_whole() -> bool:
    """Whether this release's own assembly wraps what joins two backends, and not each of them."""
    apart = "sglang.srt.model_executor.model_runner_components.attention_backend_setup:_build_resolved_backend"
    assembly = find(apart) or find("sglang.srt.model_executor.model_runner:ModelRunner")
    return re.search(r"attn_backend_wrapper\(\s*\w+,\s*HybridAttnBackend", inspect.getsource(assembly)) is not None
