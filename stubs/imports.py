"""Makes SGLang importable in this process: stand-ins for the packages that are absent or do not import here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Literal

import torch

from stubs.packages import cutlass, flash_mla, flashinfer, sgl_kernel, torchvision, triton, vllm

# FlashAttention 3 is a Hopper kernel: SGLang refuses it below compute capability 9.0.
HOPPER = (9, 0)
HOPPER_CORES = 132  # streaming multiprocessors of an H100
# What flashinfer's kernels are given to work in, half a GiB unless told: stand-ins need none of it.
WORKSPACE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StandIn:
    """One package that is not the real one here. ``offers`` are the names that work; any other raises when called."""

    name: str
    reason: Literal["absent", "does not import"]
    offers: tuple[str, ...]


def install(stand_ins: bool = True) -> tuple[StandIn, ...]:
    """Prepare this process for importing SGLang; call it before triton or SGLang is imported.

    Sets the environment and one torch thread, has Triton's kernels interpreted where there is no GPU, and, unless ``stand_ins`` is false, supplies each package of
    ``_PACKAGES`` that is absent or does not import. A second call changes nothing and returns the same answer.
    Raises RuntimeError where SGLang was imported already.
    """
    global _installed
    if _installed is not None:
        return _installed
    if "sglang" in sys.modules:
        raise RuntimeError("sglang is imported already; expected imports.install() first, in a fresh process")
    os.environ["SGLANG_USE_SGL_FA3_KERNEL"] = "1"  # SGLang's other choice downloads a kernel from a hub
    # The interpreter is single-threaded and workers run side by side: more threads only get in each other's way.
    torch.set_num_threads(1)
    if not torch.cuda.is_available():
        _answer_for_gpu()
    _installed = tuple(found for found in map(_supply, _PACKAGES) if found) if stand_ins else ()
    return _installed


_installed: tuple[StandIn, ...] | None = None


def require_gpu() -> None:
    """Raises RuntimeError where torch sees no CUDA device: nothing of what was asked for could be run."""
    if not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} sees no CUDA device; expected one: use --device cpu without it")


@dataclass(frozen=True, slots=True)
class _Package:
    """A package that SGLang imports; ``module`` makes a stand-in for it or for a submodule.

    ``submodules`` are the only ones there are, or None where any may be asked for.
    """

    name: str
    offers: tuple[str, ...]
    module: Callable[[str], ModuleType] | None
    submodules: tuple[str, ...] | None = None


_PACKAGES = (
    _Package("torchvision", torchvision.OFFERS, None),
    _Package("vllm", vllm.OFFERS, vllm.module, vllm.MODULES),
    _Package("cutlass", cutlass.OFFERS, cutlass.module),
    _Package("cuda", cutlass.OFFERS, cutlass.module, cutlass.CUDA_MODULES),
    _Package("sgl_kernel", sgl_kernel.OFFERS, sgl_kernel.module),
    _Package("flash_mla", flash_mla.OFFERS, flash_mla.module),
    _Package("flashinfer", flashinfer.OFFERS, flashinfer.module),
)
NAMES = tuple(package.name for package in _PACKAGES)


def _answer_for_gpu() -> None:
    """Interpret Triton's kernels, compile nothing, and be a Hopper to whoever asks."""
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ.setdefault("SGLANG_FLASHINFER_WORKSPACE_SIZE", str(WORKSPACE_BYTES))
    os.environ["SGLANG_NATIVE_MOVE_KV_CACHE"] = "1"  # SGLang's other way is a CUDA kernel over raw addresses
    # Compiling for a CPU takes a C++ compiler and minutes; eager gives what the compiled function is meant to give.
    # Not TORCH_COMPILE_DISABLE: with it, torch refuses flex_attention.
    torch.compile = _leave_as_it_is
    torch.cuda.get_device_capability = _hopper
    if find_spec("triton") is not None:
        triton.mend_interpreter()


def _supply(package: _Package) -> StandIn | None:
    """Stand in for ``package`` if the real one is of no use here; None where it is, or where nothing can be done."""
    reason = _fault(package.name)
    if reason is None or (reason == "absent" and package.module is None):
        return None
    for name in [name for name in sys.modules if name.partition(".")[0] == package.name]:
        del sys.modules[name]  # what a failed import of the real one left behind
    if package.module is None:
        torchvision.import_without_operators()
    else:
        sys.meta_path.insert(0, _Finder(package))
    return StandIn(package.name, reason, package.offers)


def _fault(name: str) -> Literal["absent", "does not import"] | None:
    if find_spec(name) is None:
        return "absent"
    try:
        import_module(name)
    except Exception:  # noqa: BLE001 - a foreign package may fail in any way, and each means that it is of no use here
        return "does not import"
    return None


class _Finder(MetaPathFinder, Loader):
    """Answers imports of one stood-in package and its submodules."""

    def __init__(self, package: _Package) -> None:
        self.package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        known = self.package.submodules
        if fullname.partition(".")[0] != self.package.name or (known is not None and fullname not in known):
            return None
        return ModuleSpec(fullname, self, is_package=fullname == self.package.name or known is None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        assert self.package.module is not None
        return self.package.module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the stand-in is complete when it is created."""


def _hopper(device: object = None) -> tuple[int, int]:
    return HOPPER


def _leave_as_it_is(model: Callable[..., Any] | None = None, **options: object) -> Callable[..., Any]:
    """torch.compile, as a function or as a decorator with options, without the compiling."""
    return _leave_as_it_is if model is None else model
