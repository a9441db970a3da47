"""SGLang's memory of hybrid models: a full pool, a window pool and the allocator that maps one to the other."""

from __future__ import annotations

from typing import Any

from stubs import sglang_chunk, sglang_encoder, sglang_latent, sglang_linear, sglang_memory
from stubs.layer import layer_of
from stubs.refusal import Refused
from stubs.sglang import DTYPES, accepted, find, kv_torch_dtype
from stubs.world import World


def hybrid_pool(world: World) -> Any:
    """The real SWAKVPool: layers with a window in the smaller pool, the others in one of max_total_tokens."""
    cls = find("sglang.srt.mem_cache.swa_memory_pool:SWAKVPool")
    layers = range(world.num_layers)
    return cls(
        size=world.max_total_tokens,
        size_swa=world.window_tokens,
        page_size=world.page_size,
        dtype=kv_torch_dtype(world),
        head_num=world.num_kv_heads,
        head_dim=world.head_dim,
        **sglang_memory.value_dim(world),
        swa_attention_layer_ids=[layer for layer in layers if layer_of(world, layer).is_local],
        full_attention_layer_ids=[layer for layer in layers if not layer_of(world, layer).is_local],
        device=world.device,
        **accepted(cls.__init__, enable_kvcache_transpose=False),
    )


def hybrid_allocator(world: World, pool: Any) -> Any:
    """The real SWATokenToKVPoolAllocator over ``pool``."""
    cls = find(
        "sglang.srt.mem_cache.allocator.swa:SWATokenToKVPoolAllocator",  # from 0.5.13 on
        "sglang.srt.mem_cache.swa_memory_pool:SWATokenToKVPoolAllocator",
    )
    return cls(
        world.max_total_tokens,
        world.window_tokens,
        page_size=world.page_size,
        dtype=DTYPES[world.dtype],
        device=world.device,
        kvcache=pool,
        need_sort=False,
    )


def refuse_dims(world: World) -> None:
    """Raise Refused where a backend has one head dim for keys and values, and the release does not say otherwise."""
    if world.kv_lora_rank:
        return  # another backend, or SGLang's own words, where a backend is for other models
    able = find("sglang.srt.arg_groups.kv_cache_hook:ASYMMETRIC_KV_BACKENDS") or ()
    for backend in (world.prefill, world.decode):
        if world.v_dim != world.head_dim and backend in ONE_HEAD_DIM and backend not in able:
            raise Refused(f"{backend} has one head dim for keys and values, given {world.head_dim} and {world.v_dim}")


# Source: the comment at ASYMMETRIC_KV_BACKENDS in SGLang 0.5.23's arg_groups/kv_cache_hook.py.
ONE_HEAD_DIM = ("flashinfer", "trtllm_mha")


def eviction_margin(world: World) -> int:
    """Tokens that SGLang keeps behind a request's window beside those in it, by the release's rule or more."""
    no_margin = find("sglang.srt.mem_cache.common:free_swa_out_of_window_slots") is not None  # from 0.5.14 on
    return 0 if no_margin and not world.radix_cache else world.page_size


def is_hybrid(config: Any) -> bool:
    """Whether SGLang takes the model of this ModelConfig for one with a window pool."""
    name = "is_hybrid_swa" if hasattr(config, "is_hybrid_swa") else "is_hybrid"  # the second up to 0.5.5
    return bool(getattr(config, name))  # up to 0.5.7 None says no


def architectures(world: World) -> tuple[str, ...]:
    """Architectures that may have such layers, the plainest first: the release says of each whether it has them."""
    if world.kv_lora_rank:
        return (sglang_latent.ARCHITECTURE,)
    if world.linear_before:
        return (sglang_linear.ARCHITECTURE,)
    if world.attention_chunk_size:
        return (sglang_chunk.ARCHITECTURE,)
    if world.encoder_decoder:
        return (sglang_encoder.ARCHITECTURE,)
    if world.sinks:
        return (ALWAYS,)
    return (OPT_IN, ALWAYS) if world.window_tokens else (OPT_IN,)


def config_fields(world: World, architecture: str) -> dict[str, Any]:
    """What a config.json says of the layers of a model that is no plain Llama, in the words of ``architecture``."""
    if world.kv_lora_rank:
        return sglang_latent.config_fields(world)
    if world.linear_before:
        return sglang_linear.config_fields(world)
    if world.attention_chunk_size:
        return sglang_chunk.config_fields(world)
    dims = {"v_head_dim": world.v_dim, "swa_v_head_dim": world.v_dim} if world.v_head_dim else {}
    return dims | _kinds(world, architecture)


def _kinds(world: World, architecture: str) -> dict[str, Any]:
    if not world.window_tokens and not world.sinks:
        return {}
    kinds = [bool(layer_of(world, layer).is_local) for layer in range(world.num_layers)]
    if architecture == OPT_IN:
        return {
            "is_hybrid_swa": True,
            "hybrid_layer_pattern": [int(kind) for kind in kinds],
            "sliding_window": world.sliding_window,
        }
    return {
        "model_type": "gpt_oss",
        "layer_types": ["sliding_attention" if kind else "full_attention" for kind in kinds],
        "sliding_window": world.sliding_window,
    }


# A model of any architecture may say that it is hybrid (from 0.5.13 on); gpt-oss is so in every release.
OPT_IN = "LlamaForCausalLM"
ALWAYS = "GptOssForCausalLM"
