"""Answers what SGLang asks on the way to flashinfer's kernels on a machine without CUDA: that they are there, and where."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from stubs.imports import HOPPER_CORES, WORKSPACE_BYTES
from stubs.sglang_modules import present

ATTENTION = "sglang.srt.layers.attention"
# Each asks, while it is imported, whether flashinfer is there. In the order in which they import each other.
ASKING = tuple(
    f"{ATTENTION}.{name}_backend"
    for name in ("flashinfer", "flashinfer_mla", "trtllm_mla", "cutedsl_mla", "flashmla", "cutlass_mla", "trtllm_mha")
)
UTILS = ("sglang.srt.utils", "sglang.srt.utils.common")
# Where they and the inputs that they take write "cuda" out, whatever the server's device is.
WRITING_CUDA = (
    f"{ATTENTION}.flashinfer_backend",
    f"{ATTENTION}.flashinfer_mla_backend",
    f"{ATTENTION}.flashmla_backend",
    f"{ATTENTION}.cutlass_mla_backend",
    "sglang.srt.speculative.eagle_info",
)
FACTORIES = ("empty", "zeros", "ones", "full", "tensor", "arange")
# Where and by what names releases ask, while they check a server's arguments, for a GPU that TensorRT-LLM's kernels run on.
BLACKWELL_PLACES = ("sglang.srt.server_args", UTILS[1], "sglang.srt.arg_groups.overrides")  # the last from 0.5.15 on
BLACKWELL = ("is_sm100_supported", "is_blackwell_supported")
NEEDS_BLACKWELL = ("trtllm_mha", "trtllm_mla", "cutedsl_mla")


def prepare_flashinfer() -> None:
    """Import SGLang's flashinfer and TensorRT-LLM backends over what stands in for flashinfer; once per process."""
    with ExitStack() as answers:
        for name in UTILS:
            module = import_module(name)
            if hasattr(module, "is_flashinfer_available"):
                answers.enter_context(patch.object(module, "is_flashinfer_available", _yes))
        for name in ASKING:
            sys.modules.pop(name, None)  # imported before, it would know of no flashinfer
        for name in ASKING:
            with contextlib.suppress(ImportError):  # a release without it says so when it is to start
                import_module(name)
    # For EAGLE SGLang makes a CUDA stream here, unless there is one; nobody uses it.
    import_module("sglang.srt.model_executor.model_runner").ModelRunner.plan_stream_for_flashinfer = True
    here = torch_here()
    for name in WRITING_CUDA:
        if name in sys.modules:
            sys.modules[name].torch = here  # type: ignore[attr-defined]


@contextlib.contextmanager
def blackwell(*backends: str) -> Iterator[None]:
    """While a server's arguments are checked: a GPU for TensorRT-LLM's kernels, where one of ``backends`` needs it."""
    with ExitStack() as answers:
        if not torch.cuda.is_available() and any(name in NEEDS_BLACKWELL for name in backends):
            for module in present(*BLACKWELL_PLACES):
                for name in BLACKWELL:
                    if hasattr(module, name):
                        answers.enter_context(patch.object(module, name, _yes))
        yield


def keep_workspaces_small() -> None:
    """For the next backend: deterministic inference makes flashinfer's take 2 GiB, and says so to the whole process."""
    if not torch.cuda.is_available():
        os.environ["SGLANG_FLASHINFER_WORKSPACE_SIZE"] = str(WORKSPACE_BYTES)


@contextlib.contextmanager
def kept_on_cpu(module: ModuleType) -> Iterator[None]:
    """While ``module`` runs, its torch is ``torch_here``; nothing changes where there is a GPU."""
    if torch.cuda.is_available():
        yield
        return
    with patch.object(module, "torch", torch_here()):
        yield


def torch_here() -> ModuleType:
    """torch, but its factories put on the CPU what a caller wants on "cuda", and pin no memory for a GPU to read."""
    here = ModuleType(torch.__name__, torch.__doc__)
    here.__dict__.update(vars(torch))
    for name in FACTORIES:
        setattr(here, name, _on_cpu(getattr(torch, name)))
    here.cuda = _gpu_here()  # type: ignore[attr-defined]
    return here


def _gpu_here() -> ModuleType:
    """torch.cuda, which tells how many multiprocessors a GPU has that is not there."""
    gpu = ModuleType(torch.cuda.__name__, torch.cuda.__doc__)
    gpu.__dict__.update(vars(torch.cuda))
    gpu.get_device_properties = _properties  # type: ignore[attr-defined]
    return gpu


def _properties(device: object = None) -> SimpleNamespace:
    return SimpleNamespace(multi_processor_count=HOPPER_CORES)


def _on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(factory)
    def make(*args: Any, **options: Any) -> torch.Tensor:
        if str(options.get("device", "")).startswith("cuda"):
            options["device"] = "cpu"
        options.pop("pin_memory", None)
        return factory(*args, **options)

    return make


def _yes(*_: object) -> bool:
    return True
