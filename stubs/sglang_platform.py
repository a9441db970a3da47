"""Answers, after SGLang is imported on a machine without CUDA, the questions it asks about the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from stubs.imports import HOPPER, HOPPER_CORES
from stubs.kernels import fp8_quantise, zero_kv
from stubs.sglang_flashinfer import prepare_flashinfer
from stubs.sglang_latent_store import store_by_triton
from stubs.sglang_modules import present


@dataclass(frozen=True, slots=True)
class _Answer:
    """``name`` becomes ``value`` in every one of ``modules`` that this release has and that has ``name`` already."""

    name: str
    value: Any
    modules: tuple[str, ...]
    is_new: bool = False  # set the name also where it is not there: SGLang imports it only behind a platform flag


def prepare_platform() -> None:
    """Make fa3 constructible and EAGLE's cache and tree kernels reachable without CUDA; a second call changes nothing.

    Call after ``imports.install()``. On a machine with CUDA it does nothing.
    """
    if torch.cuda.is_available():
        return
    prepare_flashinfer()
    store_by_triton()
    for answer in _answers():
        for module in present(*answer.modules):
            if answer.is_new or hasattr(module, answer.name):
                setattr(module, answer.name, answer.value)


def _answers() -> tuple[_Answer, ...]:
    sgl_kernel = import_module("sgl_kernel")
    tree = (_tree_module(),)
    compiled_tree = ("sglang.kernels.ops.speculative.tree",)  # from 0.5.21 on SGLang compiles these kernels itself
    flash_attention_v3 = (
        "sglang.kernels.ops.attention.flash_attention_v3",  # from 0.5.17 on
        "sglang.jit_kernel.flash_attention_v3",
    )
    return (
        _Answer(
            "get_device_capability",
            _hopper,
            (
                "sglang.srt.layers.attention.attention_registry",
                "sglang.srt.layers.attention.flashattention_backend",
                *flash_attention_v3,
            ),
        ),
        # With no cores SGLang never plans how many splits a decode takes.
        _Answer("get_device_core_count", _core_count, ("sglang.srt.layers.attention.triton_backend",)),
        _Answer("_is_fa3_supported", _yes, flash_attention_v3),
        # Without a platform flag these write nothing and return None; their kernels are Triton's and interpretable.
        _Answer(
            "_is_cuda",
            True,
            (
                "sglang.kernels.ops.speculative.cache_locs",  # from 0.5.16 on
                "sglang.srt.speculative.triton_ops.cache_locs",  # 0.5.13 to 0.5.15.post1
                "sglang.srt.speculative.eagle_info_v2",  # 0.5.11 and 0.5.12
            ),
        ),
        _Answer("_is_cuda", True, tree),
        _Answer("sgl_build_tree_kernel_efficient", sgl_kernel.build_tree_kernel_efficient, tree, is_new=True),
        _Answer("build_tree_kernel_efficient", sgl_kernel.build_tree_kernel_efficient, compiled_tree),
        _Answer("verify_tree_greedy", sgl_kernel.verify_tree_greedy, compiled_tree),
        *(
            _Answer(name, getattr(sgl_kernel, name), ("sglang.srt.layers.attention.cutlass_mla_backend",), is_new=True)
            for name in ("cutlass_mla_decode", "cutlass_mla_get_workspace_size")
        ),
        _Answer(
            "_jit_fixup_module",  # SGLang's own kernel, which it compiles when a backend starts or first needs it
            _zero_kv,
            (
                "sglang.kernels.ops.attention.fixup_zero_kv",  # from 0.5.17 on
                "sglang.jit_kernel.fixup_zero_kv",
                "sglang.srt.layers.attention.trtllm_mla_backend",
            ),
        ),
        _Answer(
            "sgl_per_tensor_quant_fp8",  # the same, from sgl_kernel before
            fp8_quantise.per_tensor_quant_fp8,
            (
                "sglang.kernels.ops.quantization.fp8_kernel",  # from 0.5.16 on
                "sglang.srt.layers.quantization.fp8_kernel",
            ),
            is_new=True,
        ),
        # Launches that overlap are none that the interpreter has.
        _Answer("is_arch_support_pdl", _no, ("sglang.srt.layers.attention.cutedsl_mla_backend",)),
    )


def _tree_module() -> str:
    """The module that picks the EAGLE tree kernels by platform flag: spec_tree in 0.5.23, eagle_utils before."""
    spec_tree = "sglang.kernels.ops.speculative.spec_tree"
    if any(hasattr(module, "verify_tree_greedy_func") for module in present(spec_tree)):
        return spec_tree
    return "sglang.srt.speculative.eagle_utils"


def _hopper(device_id: int = 0) -> tuple[int, int]:
    return HOPPER


def _zero_kv(dtype: torch.dtype) -> ModuleType:
    return zero_kv


def _core_count(device_id: int = 0) -> int:
    return HOPPER_CORES


def _yes(device: object = None) -> bool:
    return True


def _no() -> bool:
    return False
