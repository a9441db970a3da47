"""Stand-in for the kernel that SGLang compiles to empty the rows of requests that a chunk of a prefix has no keys of."""

from __future__ import annotations

import torch

from stubs.kernels.contract import ContractBreach, require
from stubs.kernels.door import closed_kernel
from stubs.kernels.flashinfer_contract import check_indptr, lengths_of

FIXUP = "fixup_zero_kv_rows"


@closed_kernel
def fixup_zero_kv_rows(
    out: torch.Tensor, lse: torch.Tensor, kv_lens: torch.Tensor, cum_seq_lens: torch.Tensor, max_seq_len: int
) -> None:
    """Set ``out`` [T, H, D] to 0 and ``lse`` [T, H] to -inf in the rows of requests without keys.

    ``kv_lens`` int32 [B], ``cum_seq_lens`` int32 [B + 1]; a grid of ``max_seq_len`` rows a request. Raises
    ContractBreach. Source: SGLang's fixup_zero_kv.py, whose kernel needs nvcc.
    """
    require(kv_lens.dtype == torch.int32, FIXUP, "kv_lens", f"is {kv_lens.dtype}, expected torch.int32", rule="dtype")
    lengths: list[int] = kv_lens.tolist()
    rows = check_indptr(FIXUP, "cum_seq_lens", cum_seq_lens, len(lengths))
    held = out.shape[0]
    require(rows[-1] <= held, FIXUP, "cum_seq_lens", f"ends at {rows[-1]}, out has {held} rows")
    shape, expected = tuple(lse.shape), tuple(out.shape[:2])
    require(shape == expected, FIXUP, "lse", f"{shape}, expected {expected}", rule="shape")
    require(lse.dtype == torch.float32, FIXUP, "lse", f"is {lse.dtype}, expected torch.float32", rule="dtype")
    for name, tensor in (("out", out), ("lse", lse)):
        require(
            tensor.is_contiguous(), FIXUP, name, f"has strides {tensor.stride()}, expected contiguous", rule="stride"
        )
    for request, (length, count) in enumerate(zip(lengths, lengths_of(rows), strict=True)):
        if count > max_seq_len:
            raise ContractBreach(FIXUP, "max_seq_len", f"{max_seq_len} does not cover {count} rows", request)
        if length == 0:
            out[rows[request] : rows[request + 1]] = 0
            lse[rows[request] : rows[request + 1]] = float("-inf")
