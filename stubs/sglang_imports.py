"""Imports the attention code of a release in an order, and with the answers, that each release can be imported with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from stubs.sglang import ATTENTION, load
from stubs.sglang_flashinfer import torch_here

# Where the code under test is: what a coverage-guided search watches, and a coverage report counts.
WATCHED = (ATTENTION, "sglang.srt.speculative", "sglang.kernels.ops.attention")


def import_attention() -> None:
    """Call after ``imports.install()`` and before anything else of SGLang is asked for."""
    if not torch.cuda.is_available():
        _take_interpreted_kernels()
        _keep_python_operators()
    # Up to 0.5.7 layers/linear.py and layers/quantization import each other: a server comes to the second one first.
    load("sglang.srt.layers.quantization")
    load(f"{ATTENTION}.hybrid_attn_backend")
    if not torch.cuda.is_available():
        _draw_trees_here()


def _take_interpreted_kernels() -> None:
    """SGLang's cache of compiled kernels takes what Triton compiles alone: interpreted kernels are left as they are."""
    module = load("sglang.srt.utils.common")
    if hasattr(module, "CachedKernel"):
        module.CachedKernel = _uncached


def _keep_python_operators() -> None:
    """Remember what SGLang's operators for a GPU alone are written as: torch gives a registered one's Python to nobody."""
    module = load("sglang.srt.utils.common")
    register = getattr(module, "direct_register_custom_op", None)
    if register is None:
        return

    def keep(op_name: str, op_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        PYTHON_OPERATORS[op_name] = op_func
        return register(op_name, op_func, *args, **kwargs)

    module.direct_register_custom_op = keep


# By the name that torch.ops.sglang has for it.
PYTHON_OPERATORS: dict[str, Callable[..., Any]] = {}


def _uncached(kernel: Any, key_fn: Callable[..., Any] | None = None) -> Any:
    return kernel


def _draw_trees_here() -> None:
    """Up to 0.5.5 draft trees are drawn on "cuda" whatever the device is, and 0.5.4 knows no top k but a GPU's."""
    module = load("sglang.srt.speculative.spec_utils")
    if not hasattr(module, "fast_topk"):
        module.fast_topk = torch.topk
    draw = getattr(module, "select_top_k_tokens", None)
    if draw is not None and 'device="cuda"' in inspect.getsource(draw):
        module.torch = torch_here()
