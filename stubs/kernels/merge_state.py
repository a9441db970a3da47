"""Stand-in for sgl_kernel.merge_state_v2: refuses a call outside the contract, then joins two partial attentions."""

from __future__ import annotations

import torch

from stubs.kernels.contract import require
from stubs.kernels.door import closed_kernel

MERGE = "merge_state_v2"
PACK_BYTES = 16  # the kernel moves 16 bytes at a time along the head dim


@closed_kernel
def merge_state_v2(
    v_a: torch.Tensor,
    s_a: torch.Tensor,
    v_b: torch.Tensor,
    s_b: torch.Tensor,
    v_merged: torch.Tensor | None = None,
    s_merged: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge outputs [T, H, D] by their LSE [T, H] (natural log) into (output, float32 LSE).

    The kernel walks raw memory, so every tensor is contiguous. An LSE of +inf counts as -inf, as in the kernel; where
    both are -inf the answer is NaN. Raises ContractBreach. Source: SGLang's call sites (flashattention_backend.py,
    merge_state.py) and sgl_kernel's published wrapper; not checked against the compiled kernel.
    """
    require(v_a.dim() == 3, MERGE, "v_a", f"{tuple(v_a.shape)}, expected [tokens, heads, head dim]", rule="shape")
    expected = {"v_a": v_a.shape, "v_b": v_a.shape, "v_merged": v_a.shape}
    expected |= dict.fromkeys(("s_a", "s_b", "s_merged"), v_a.shape[:2])
    given = {"v_a": v_a, "s_a": s_a, "v_b": v_b, "s_b": s_b, "v_merged": v_merged, "s_merged": s_merged}
    for name, tensor in given.items():
        if tensor is None:
            continue
        shape = tuple(expected[name])
        require(tuple(tensor.shape) == shape, MERGE, name, f"{tuple(tensor.shape)}, expected {shape}", rule="shape")
        require(
            tensor.is_contiguous(), MERGE, name, f"has strides {tensor.stride()}, expected contiguous", rule="stride"
        )
        if name.startswith("v_"):
            require(tensor.dtype == v_a.dtype, MERGE, name, f"is {tensor.dtype}, v_a is {v_a.dtype}", rule="dtype")
    pack = PACK_BYTES // v_a.element_size()
    width = v_a.shape[2]
    require(
        width % pack == 0,
        MERGE,
        "v_a",
        f"has head dim {width}, expected a multiple of {pack} for {v_a.dtype}",
        rule="dtype",
    )

    lse_a, lse_b = (torch.where(lse == float("inf"), float("-inf"), lse.float()) for lse in (s_a, s_b))
    most = torch.maximum(lse_a, lse_b)
    weight_a, weight_b = torch.exp(lse_a - most), torch.exp(lse_b - most)
    total = weight_a + weight_b
    value = (v_a.float() * weight_a[..., None] + v_b.float() * weight_b[..., None]) / total[..., None]
    out = torch.empty_like(v_a) if v_merged is None else v_merged
    lse = torch.empty_like(lse_a) if s_merged is None else s_merged
    out.copy_(value)
    lse.copy_(most + torch.log(total))
    return out, lse
