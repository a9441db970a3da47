"""Stands in for sgl_kernel: FlashAttention 3, state merging and trees of drafts come from stubs/kernels."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from stubs.packages.unwritten import UnwrittenModule

# sgl_kernel's module -> name in it -> module of ours that holds it.
_WRITTEN = {
    "sgl_kernel": {
        "merge_state": "stubs.kernels.merge_state",
        "merge_state_v2": "stubs.kernels.merge_state",
        "cutlass_mla_decode": "stubs.kernels.cutlass_mla",
        "cutlass_mla_get_workspace_size": "stubs.kernels.cutlass_mla",
        "build_tree_kernel_efficient": "stubs.kernels.eagle_tree",
        "verify_tree_greedy": "stubs.kernels.eagle_tree",
    },
    "sgl_kernel.speculative": {"reconstruct_indices_from_tree_mask": "stubs.kernels.ngram_tree"},
    "sgl_kernel.flash_mla": {
        "flash_mla_with_kvcache": "stubs.kernels.flashmla",
        "get_mla_metadata": "stubs.kernels.flashmla",
    },
    "sgl_kernel.flash_attn": {
        "flash_attn_with_kvcache": "stubs.kernels.fa3",
        "flash_attn_varlen_func": "stubs.kernels.fa3",
        "get_scheduler_metadata": "stubs.kernels.fa3",
    },
}
OFFERS = tuple(f"{module}.{name}" for module, names in _WRITTEN.items() for name in names)


class _Shell(UnwrittenModule):
    """Fetches what stubs/kernels has written when it is first asked for; all other names are unwritten."""

    def __getattr__(self, name: str) -> Any:
        source = _WRITTEN.get(self.__name__, {}).get(name)
        if source is None:
            return super().__getattr__(name)
        value = getattr(import_module(source), name)
        setattr(self, name, value)
        return value


def is_fa3_supported(device: object = None) -> bool:
    """The stand-in computes in plain torch, so every device will do."""
    return True


def is_arch_support_pdl() -> bool:
    """Programmatic dependent launch is a GPU feature; the stand-in has none."""
    return False


def module(name: str) -> ModuleType:
    """The stand-in for ``sgl_kernel`` or one of its submodules."""
    shell = _Shell(name)
    if name == "sgl_kernel.flash_attn":
        shell.is_fa3_supported = is_fa3_supported
    if name == "sgl_kernel.utils":
        shell.is_arch_support_pdl = is_arch_support_pdl
    return shell
