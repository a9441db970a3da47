"""SGLang's side of multi-head latent attention: the model that has it, its pool, and how its layers are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stubs.refusal import Refused
from stubs.rotary import Rotary
from stubs.sglang import find, kv_torch_dtype, load
from stubs.world import World

DRAFT_ARCHITECTURE = "DeepseekV3ForCausalLMNextN"  # its multi-token prediction layer, which EAGLE takes for a draft
ARCHITECTURE = "DeepseekV2ForCausalLM"  # latent in every release; the later ones bring server settings of their own


def config_fields(world: World) -> dict[str, Any]:
    """What the config.json of a DeepSeek-like model of ``world`` says beside a Llama's.

    Its key before absorption is as wide as the row of KV, so that SGLang scales logits as the world's layers do.
    """
    return {
        "model_type": "deepseek_v2",
        "num_key_value_heads": world.num_heads,
        "kv_lora_rank": world.kv_lora_rank,
        "qk_rope_head_dim": world.qk_rope_head_dim,
        "qk_nope_head_dim": world.kv_lora_rank,
        "v_head_dim": world.kv_lora_rank,
        # Releases before 0.5.11 want a factor where newer transformers fill in rotary settings of their own.
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 1.0,
            "mscale_all_dim": 0,
            "original_max_position_embeddings": world.context_len,
        },
        "first_k_dense_replace": world.num_layers,  # no layer has experts
    }


def draft_config_fields(world: World) -> dict[str, Any]:
    """The same of the layer that drafts for it."""
    return config_fields(world) | {"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}


def is_latent(config: Any) -> bool:
    """Whether SGLang takes the model of this ModelConfig for one with latent attention."""
    return bool(config.attention_arch == load("sglang.srt.configs.model_config").AttentionArch.MLA)


def check_arch(world: World, config: Any) -> None:
    """Raise Refused where the release does not see what the world asks for."""
    if is_latent(config) != bool(world.kv_lora_rank):
        raise Refused(f"this release takes a {config.hf_config.architectures[0]} for another kind of attention")


def latent_pool(world: World, layers: int) -> Any:
    """The real MLATokenToKVPool: a row [1, head_dim] for a slot, latent and rotary key, per layer."""
    cls = load("sglang.srt.mem_cache.memory_pool").MLATokenToKVPool
    return cls(
        size=world.max_total_tokens,
        page_size=world.page_size,
        dtype=kv_torch_dtype(world),
        kv_lora_rank=world.kv_lora_rank,
        qk_rope_head_dim=world.qk_rope_head_dim,
        layer_num=layers,
        device=world.device,
        enable_memory_saver=False,
    )


def takes_parts(world: World, forward_batch: Any) -> bool:
    """Whether the model hands latent and rotary parts in apart, by the release's list of backends that it does so for."""
    listed = find(*LISTS)
    if listed is None:
        raise Refused("this release does not list the backends that take latent and rotary parts apart")
    return serving(world, forward_batch.forward_mode) in listed


def serving(world: World, mode: Any) -> str:
    """The name of the backend that serves ``mode``, as the model tells it: by what is stamped on the backend, if anything.

    Source: dispatch_attn_forward_method of SGLang's models/deepseek_v2.
    """
    current = find("sglang.srt.model_executor.forward_context:get_attn_backend")
    backend = None if current is None else current()
    prefill = getattr(backend, "prefill_attention_backend_str", None) or world.prefill
    decode = getattr(backend, "decode_attention_backend_str", None) or world.decode
    if mode.is_decode_or_idle():
        return str(decode)
    is_draft_extend = getattr(mode, "is_draft_extend", None) or mode.is_draft_extend_v2  # the first up to 0.5.13
    is_speculative = mode.is_target_verify() or is_draft_extend()
    return str(decode if is_speculative and world.spec_mode == "decode" else prefill)


LISTS = (
    "sglang.srt.models.deepseek_common.utils:FORWARD_ABSORB_CORE_ATTENTION_BACKENDS",
    "sglang.srt.models.deepseek_v2:FORWARD_ABSORB_CORE_ATTENTION_BACKENDS",
)


@dataclass(frozen=True, slots=True)
class AbsorbedAttention:
    """What SGLang reads off DeepSeek's attention to choose whether a backend applies rotary positions."""

    current_attention_backend: str
    rotary_emb: Rotary | None


def fuses_rope(world: World, rotary: Rotary, forward_batch: Any) -> bool:
    """Whether the model leaves the rotation to the backend, which then turns and quantises at once: SGLang's own choice."""
    asked = getattr(find(*FUSING), FUSES, None)
    if asked is None:
        raise Refused(f"this release's DeepSeek does not say by {FUSES} whether its backend rotates")
    attention = AbsorbedAttention(serving(world, forward_batch.forward_mode), rotary)
    return bool(asked(attention, forward_batch))


FUSES = "_fuse_rope_for_trtllm_mla"
FUSING = (
    "sglang.srt.models.deepseek_common.attention_forward_methods.forward_mla:DeepseekMLAForwardMixin",
    "sglang.srt.models.deepseek_v2:DeepseekV2AttentionMLA",
)
