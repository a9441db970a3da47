"""Stands in for flashinfer: its attention wrappers, state merging and TensorRT-LLM kernels come from stubs/kernels."""

from __future__ import annotations

from types import ModuleType

from stubs.packages.written import WrittenModule

# flashinfer's module -> name in it -> module of ours that holds it.
_WRITTEN = {
    "flashinfer": {
        "BatchDecodeWithPagedKVCacheWrapper": "stubs.kernels.flashinfer_decode",
        "BatchMLAPagedAttentionWrapper": "stubs.kernels.flashinfer_mla",
        "BatchPrefillWithPagedKVCacheWrapper": "stubs.kernels.flashinfer_prefill",
        "BatchPrefillWithRaggedKVCacheWrapper": "stubs.kernels.flashinfer_ragged",
        "fast_decode_plan": "stubs.kernels.flashinfer_decode",
    },
    "flashinfer.cascade": {"merge_state": "stubs.kernels.flashinfer_attention"},
    "flashinfer.decode": {
        "_grouped_size_compiled_for_decode_kernels": "stubs.kernels.flashinfer_decode",
        "fast_decode_plan": "stubs.kernels.flashinfer_decode",
        "trtllm_batch_decode_with_kv_cache": "stubs.kernels.trtllm",
        "trtllm_batch_decode_with_kv_cache_mla": "stubs.kernels.trtllm_mla",
    },
    "flashinfer.mla": {"BatchMLAPagedAttentionWrapper": "stubs.kernels.flashinfer_mla"},
    "flashinfer.prefill": {
        "trtllm_batch_context_with_kv_cache": "stubs.kernels.trtllm",
        "trtllm_ragged_attention_deepseek": "stubs.kernels.trtllm_mla",
    },
    "flashinfer.rope": {"mla_rope_quantize_fp8": "stubs.kernels.fp8_quantise"},
    "flashinfer.utils": {
        "get_device_sm_count": "stubs.kernels.trtllm",
        "get_trtllm_gen_multi_ctas_kv_counter_bytes": "stubs.kernels.trtllm",
    },
}
# Modules that are also read as a name of the package (``flashinfer.decode.…`` after ``import flashinfer``).
_AS_NAMES = ("cascade", "decode", "mla", "prefill", "rope", "utils")
OFFERS = tuple(f"{module}.{name}" for module, names in _WRITTEN.items() for name in names)


def module(name: str) -> ModuleType:
    """The stand-in for ``flashinfer`` or one of its submodules."""
    return WrittenModule(name, _WRITTEN.get(name, {}), _AS_NAMES if name == "flashinfer" else ())
