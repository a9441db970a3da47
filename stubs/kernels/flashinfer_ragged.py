"""Stand-in for flashinfer's prefill wrapper over packed keys and values."""

from __future__ import annotations

from typing import Any

import torch

from stubs.kernels import flashinfer_contract as contract
from stubs.kernels.contract import StandInGap, require, require_absent
from stubs.kernels.flashinfer_attention import Answer, Launch, attend_rows
from stubs.kernels.flashinfer_plan import Geometry, PlannedKernel, dtype_of
from stubs.kernels.flashinfer_wrappers import check_workspace, launched, refuse_encoding


class BatchPrefillWithRaggedKVCacheWrapper:
    """Attention of packed q over packed k and v, request by request."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        kv_indptr_buf: torch.Tensor | None = None,
        custom_mask_buf: torch.Tensor | None = None,
        mask_indptr_buf: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: object = None,
        jit_kwargs: object = None,
    ) -> None:
        check_workspace(type(self).__name__, float_workspace_buffer, kv_layout)
        if use_cuda_graph or kv_layout != "NHD":
            raise StandInGap(type(self).__name__, "graph mode" if use_cuda_graph else f"layout {kv_layout}")
        require_absent(type(self).__name__, jit_args=jit_args, jit_kwargs=jit_kwargs)
        self._float_workspace_buffer = float_workspace_buffer
        self._kernel: PlannedKernel | None = None
        self._launch = Launch(scale=0.0)
        self._indptr: tuple[torch.Tensor, torch.Tensor] | None = None

    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int | None = None,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: str | torch.dtype = "float16",
        kv_data_type: str | torch.dtype | None = None,
        o_data_type: str | torch.dtype | None = None,
        non_blocking: bool = True,
        **options: Any,
    ) -> None:
        """Plan a batch: both indptr int32 [B + 1]. Raises ContractBreach, and StandInGap for what SGLang does not use."""
        function = f"{type(self).__name__}.plan"
        require_absent(function, custom_mask=custom_mask, packed_custom_mask=packed_custom_mask, **options)
        refuse_encoding(function, pos_encoding_mode)
        contract.check_heads(function, num_qo_heads, num_kv_heads)
        queries = contract.check_indptr(function, "qo_indptr", qo_indptr)
        keys = contract.check_indptr(function, "kv_indptr", kv_indptr, len(queries) - 1)
        q_dtype = dtype_of(q_data_type)
        kv_dtype = q_dtype if kv_data_type is None else dtype_of(kv_data_type)
        value_dim, softcap = head_dim_vo or head_dim_qk, float(logits_soft_cap or 0.0)
        dims = num_qo_heads, num_kv_heads, head_dim_qk, value_dim, 1
        self._kernel = PlannedKernel(type(self).__name__, Geometry(*dims, q_dtype, kv_dtype, window_left, softcap))
        lengths = torch.tensor(contract.lengths_of(keys), dtype=torch.int32)
        workspace, arrays = self._float_workspace_buffer, (qo_indptr.cpu(), kv_indptr.cpu(), lengths)
        self._kernel.plan(workspace, workspace, workspace, *arrays, queries[-1], len(lengths))
        self._indptr = qo_indptr, kv_indptr
        self._launch = Launch(sm_scale or head_dim_qk**-0.5, causal=causal, window_left=window_left, softcap=softcap)

    begin_forward = plan

    def run(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: object, return_lse: bool = False, **options: Any
    ) -> torch.Tensor | Answer:
        """The answer [T, H, Dv], or that and LSE [T, H] in base 2."""
        require_absent(f"{type(self).__name__}.run", **options, args=args or None)
        require(self._kernel is not None, type(self).__name__, "plan", "run came before it")
        assert self._kernel is not None and self._indptr is not None
        out, lse = attend_rows(self._kernel, q, k, v, *self._indptr, self._launch)
        return (out, lse) if return_lse else out

    def forward_return_lse(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
    ) -> Answer:
        """The old way to run: its options take the place of the planned ones."""
        refuse_encoding(f"{type(self).__name__}.forward", pos_encoding_mode)
        self._launch = launched(
            self._launch,
            q.shape[-1],
            sm_scale=sm_scale,
            window_left=window_left,
            logits_soft_cap=logits_soft_cap,
            causal=causal,
        )
        answer = self.run(q, k, v, return_lse=True)
        assert isinstance(answer, tuple)
        return answer

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        """The answer of ``forward_return_lse`` without its LSE."""
        return self.forward_return_lse(q, k, v, *args, **options)[0]

    def end_forward(self) -> None:
        """Nothing, as in flashinfer, which kept it for old callers."""
