"""Stands in for cutlass, and for the CUDA driver it names, while files of CuTe kernels are imported; none can run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from stubs.packages.unwritten import UnwrittenModule

OFFERS: tuple[str, ...] = ()
# Not cuda.bindings.runtime: SGLang asks for that one to see whether there is a GPU.
CUDA_MODULES = ("cuda", "cuda.bindings", "cuda.bindings.driver")
_DECORATORS = {"cutlass.cute": ("jit", "kernel"), "cutlass.cutlass_dsl": ("dsl_user_op",)}
# Modules that are also asked for as a name of the module around them (``from cutlass import cute``).
_AS_NAMES = ("cutlass.cute", "cutlass.cutlass_dsl")


class _Shell(UnwrittenModule):
    def __getattr__(self, name: str) -> Any:
        path = f"{self.__name__}.{name}"
        return import_module(path) if path in _AS_NAMES else super().__getattr__(name)


def keep(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of CuTe that leaves the function as it is: it fails at the first CuTe call in its body."""
    return function


def module(name: str) -> ModuleType:
    """The stand-in for ``cutlass``, one of its submodules, or one of ``CUDA_MODULES``."""
    shell = _Shell(name)
    for decorator in _DECORATORS.get(name, ()):
        setattr(shell, decorator, keep)
    return shell
