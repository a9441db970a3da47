"""What calls of the kernels over trees of drafts have in common."""

from __future__ import annotations

import torch

from stubs.kernels.contract import require

DRAFT_TOKENS_MAX = 1024  # one CUDA thread a node


def check_long(function: str, name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    """int64, this shape, contiguous: the kernels walk the raw memory."""
    require(tuple(tensor.shape) == shape, function, name, f"{tuple(tensor.shape)}, expected {shape}", rule="shape")
    require(tensor.dtype == torch.int64, function, name, f"is {tensor.dtype}, expected torch.int64", rule="dtype")
    require(
        tensor.is_contiguous(), function, name, f"has strides {tensor.stride()}, expected contiguous", rule="stride"
    )
