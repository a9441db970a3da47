"""Stands in for the wheel flash_mla, which SGLang takes FlashMLA's kernels from, from 0.5.23 on."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from stubs.kernels import flashmla
from stubs.packages.written import WrittenModule

OFFERS = (
    "flash_mla.flash_mla_with_kvcache",
    "flash_mla.get_mla_decoding_metadata",
    "flash_mla.get_mla_metadata",
    "flash_mla.flash_mla_interface.FlashMLASchedMeta",
)


def get_mla_metadata() -> tuple[flashmla.FlashMLASchedMeta, None]:
    """What the first decode fills: nothing yet."""
    return flashmla.FlashMLASchedMeta(), None


def get_mla_decoding_metadata(
    cache_seqlens: torch.Tensor,
    num_q_tokens_per_head_k: int,
    num_heads_k: int,
    num_heads_q: int | None = None,
    is_fp8_kvcache: bool = False,
    topk: int | None = None,
    use_legacy: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The schedule of the kernels that sgl_kernel had before."""
    return flashmla.get_mla_metadata(
        cache_seqlens, num_q_tokens_per_head_k, num_heads_k, num_heads_q, is_fp8_kvcache, topk
    )


_HELD: dict[str, dict[str, Any]] = {
    "flash_mla": {
        "get_mla_metadata": get_mla_metadata,
        "get_mla_decoding_metadata": get_mla_decoding_metadata,
        "flash_mla_with_kvcache": flashmla.flash_mla_with_kvcache,
    },
    "flash_mla.flash_mla_interface": {"FlashMLASchedMeta": flashmla.FlashMLASchedMeta},
}


def module(name: str) -> ModuleType:
    """The stand-in for ``flash_mla`` or one of its submodules."""
    shell = WrittenModule(name, {})
    for offered, value in _HELD.get(name, {}).items():
        setattr(shell, offered, value)
    return shell
