"""Imports the attention code of a release in an order, and with the one answer, that each release can be imported with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stubs.sglang import ATTENTION, load


def import_attention() -> None:
    """Call after ``imports.install()`` and before anything else of SGLang is asked for."""
    if not torch.cuda.is_available():
        _take_interpreted_kernels()
    # Up to 0.5.7 layers/linear.py and layers/quantization import each other: a server comes to the second one first.
    load("sglang.srt.layers.quantization")
    load(f"{ATTENTION}.hybrid_attn_backend")


def _take_interpreted_kernels() -> None:
    """SGLang's cache of compiled kernels takes what Triton compiles alone: interpreted kernels are left as they are."""
    module = load("sglang.srt.utils.common")
    if hasattr(module, "CachedKernel"):
        module.CachedKernel = _uncached


def _uncached(kernel: Any, key_fn: Callable[..., Any] | None = None) -> Any:
    return kernel
