"""DeepSeek's attention where its model does not absorb: keys and values of every head, by SGLang's own methods for it.

The projections are such that every head's key and value are the latent itself. The answer is then that of absorbed
attention over the same rows, whatever the model chooses.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from stubs.latent_worlds import UNABSORBED
from stubs.layer import layer_of
from stubs.refusal import Refused
from stubs.rotary import rotary_of
from stubs.sglang import find, load
from stubs.sglang_latent import serving
from stubs.world import World

MODELS = "sglang.srt.models.deepseek_common"
MHA = f"{MODELS}.attention_forward_methods.forward_mha"
# By the name of SGLang's AttnForwardMethod: what prepares q, k and v, and what attends.
METHODS = {
    "MHA": ("forward_normal_prepare", "forward_normal_core"),
    "MHA_ONE_SHOT": ("forward_normal_one_shot_prepare", "forward_normal_one_shot_core"),
    "MHA_CHUNKED_KV": ("forward_normal_chunked_kv_prepare", "forward_normal_chunked_kv_core"),
}
# What the first layer of a forward finds out for all of them is kept in these fields of SGLang's ForwardBatch.
OF_A_FORWARD = "sglang.srt.model_executor.forward_batch_deepseek_mha_mixin:ForwardBatchDeepSeekMHAMixin"
# What SGLang is told by: from which length on prefixes are attended to without absorption, and in chunks of how many tokens.
THRESHOLD, CAPACITY = "SGLANG_CHUNKED_PREFIX_CACHE_THRESHOLD", "SGLANG_MAX_KV_CHUNK_CAPACITY"


def dense_layer(world: World, layer_id: int) -> Any:
    """The RadixAttention that such a model has beside the absorbed one: as many kv heads as heads."""
    cls, like = load("sglang.srt.layers.radix_attention").RadixAttention, layer_of(world, layer_id)
    heads, width = world.num_heads, world.head_dim
    return cls(heads, width, like.scaling, num_kv_heads=heads, v_head_dim=world.v_dim, layer_id=layer_id)


def dense_attention(world: World, layer: Any) -> Any:
    """SGLang's DeepseekMHAForwardMixin around ``layer``, a RadixAttention of as many kv heads as heads.

    Its hidden states are a pair: q [T, heads, head_dim] and the rows of latent KV [T, head_dim]. Refused where the
    release has no such class.
    """
    mixin = find(f"{MHA}:DeepseekMHAForwardMixin")
    if mixin is None:
        raise Refused("this release keeps DeepSeek's attention without absorption in its model alone")
    if not torch.cuda.is_available():
        _take_gpu_paths(load(MHA))
    attention = type("DenseAttention", (mixin,), {"__module__": __name__})()
    heads, latent = world.num_heads, world.kv_lora_rank
    fields = {
        "attn_mha": layer,
        "num_local_heads": heads,
        "kv_lora_rank": latent,
        "qk_nope_head_dim": latent,
        "qk_rope_head_dim": world.qk_rope_head_dim,
        "qk_head_dim": world.head_dim,
        "v_head_dim": latent,
        "q_lora_rank": None,
        "kv_cache_dtype": world.kv_dtype,
        "dcp_size": 1,
        "use_dsa": False,
        "use_nsa": False,  # so named up to 0.5.12
        "rotary_emb": rotary_of(world),  # without one keys and queries go in as they are after it
        "flashinfer_mla_disable_ragged": False,
        "current_attention_backend": world.prefill,
        "q_proj": lambda hidden: (hidden[0], None),
        "kv_a_proj_with_mqa": lambda hidden: (hidden[1], None),
        "kv_a_layernorm": lambda rows: rows,
        "kv_b_proj": lambda rows: (rows.repeat(1, 2 * heads), None),
        "o_proj": lambda out: (out, None),
    }
    for name, value in fields.items():
        setattr(attention, name, value)
    tell_chunks(world)
    attention.init_mha_forward()
    return attention


def tell_chunks(world: World) -> None:
    """The process of the world's sizes for prefixes. Refused where the release cannot be told of another capacity."""
    settings = {THRESHOLD: "1", CAPACITY: str(world.prefix_chunk)} if world.prefix_chunk else {}
    for name in (THRESHOLD, CAPACITY):
        os.environ.pop(name, None)
    if settings and not hasattr(load("sglang.srt.environ").envs, CAPACITY):  # up to 0.5.11
        raise Refused(f"this release has no {CAPACITY}: prefixes come in chunks of 131072 tokens")
    os.environ.update(settings)


def _forget(batch: Any) -> None:
    """What the layers of an earlier forward left on the batch: SGLang makes a batch for each forward, we run one again."""
    fields = find(OF_A_FORWARD)
    for name in () if fields is None else fields.__annotations__:
        setattr(batch, name, getattr(fields, name))


def _take_gpu_paths(module: Any) -> None:
    """What the methods do for a GPU runs here, interpreted or over stand-ins."""
    module._is_cuda = True
    module.merge_state_v2 = load("sgl_kernel").merge_state_v2  # up to 0.5.14 imported for a GPU alone


def method_of(attention: Any, world: World, forward_batch: Any) -> tuple[str, str] | None:
    """The two methods by which the model attends to this batch, or None where it absorbs. SGLang's own choice."""
    backend = serving(world, forward_batch.forward_mode)
    if backend not in UNABSORBED:
        return None
    registry = load(f"{MODELS}.attention_backend_handler").AttentionBackendRegistry
    attention.current_attention_backend = backend
    return METHODS.get(registry.get_handler(backend)(attention, forward_batch).name)


def attend_densely(attention: Any, names: tuple[str, str], q: torch.Tensor, rows: torch.Tensor, batch: Any) -> Any:
    """The layer's output [T, heads * latent] of q [T, heads, head_dim] and rows of latent KV [T, head_dim]."""
    if attention.attn_mha.layer_id == 0:
        _forget(batch)
    prepare, core = (getattr(attention, name) for name in names)
    q, rows, rotary = q.clone(), rows.clone(), getattr(attention, "rotary_emb", None)
    if rotary is not None:
        for part in (q[..., attention.kv_lora_rank :], rows[:, None, attention.kv_lora_rank :]):
            part.copy_(rotary.back(batch.positions, part))
    return core(*prepare(batch.positions, (q, rows), batch, None))
