"""Stand-in for flashinfer's prefill wrapper over a paged cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from stubs.kernels import flashinfer_contract as contract
from stubs.kernels.contract import require, require_absent
from stubs.kernels.flashinfer_attention import Answer, Launch
from stubs.kernels.flashinfer_plan import Geometry, dtype_of, pack_mask
from stubs.kernels.flashinfer_wrappers import KVCache, PagedWrapper, launched, refuse_encoding


class BatchPrefillWithPagedKVCacheWrapper(PagedWrapper):
    """Attention of several rows a request over a paged cache."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        paged_kv_indptr_buf: torch.Tensor | None = None,
        paged_kv_indices_buf: torch.Tensor | None = None,
        paged_kv_last_page_len_buf: torch.Tensor | None = None,
        custom_mask_buf: torch.Tensor | None = None,
        mask_indptr_buf: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: object = None,
        jit_kwargs: object = None,
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend)
        require_absent(type(self).__name__, jit_args=jit_args, jit_kwargs=jit_kwargs)
        if use_cuda_graph:
            self._bind(
                qo_indptr_buf=qo_indptr_buf,
                paged_kv_indptr_buf=paged_kv_indptr_buf,
                paged_kv_indices_buf=paged_kv_indices_buf,
                paged_kv_last_page_len_buf=paged_kv_last_page_len_buf,
            )
            self._custom_mask_buf, self._mask_indptr_buf = custom_mask_buf, mask_indptr_buf

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: str | torch.dtype = "float16",
        kv_data_type: str | torch.dtype | None = None,
        o_data_type: str | torch.dtype | None = None,
        non_blocking: bool = True,
        prefix_len_ptr: torch.Tensor | None = None,
        token_pos_in_items_ptr: torch.Tensor | None = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: torch.Tensor | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        """Plan a batch: both indptr int32 [B + 1], indices int32, last_page_len int32 [B], a flat mask or none.

        Raises ContractBreach, and StandInGap for what SGLang does not use.
        """
        function = f"{type(self).__name__}.plan"
        require_absent(function, packed_custom_mask=packed_custom_mask, prefix_len_ptr=prefix_len_ptr)
        refuse_encoding(function, pos_encoding_mode)
        contract.check_heads(function, num_qo_heads, num_kv_heads)
        names = ("paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")
        arrays = paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len
        lengths = contract.check_pages(function, names, *arrays, page_size)
        queries = contract.check_indptr(function, "qo_indptr", qo_indptr, len(lengths))
        if self._use_cuda_graph:
            self._check_bound(function, len(lengths), queries[-1], paged_kv_indices)
        self._keep_mask(function, custom_mask, contract.lengths_of(queries), lengths)
        for name, value in zip((f"_{name}_buf" for name in ("qo_indptr", *names)), (qo_indptr, *arrays), strict=True):
            self._fill(name, value)
        q_dtype = dtype_of(q_data_type)
        geometry = Geometry(
            num_qo_heads,
            num_kv_heads,
            head_dim_qk,
            head_dim_vo or head_dim_qk,
            page_size,
            q_dtype,
            dtype_of(kv_data_type) if kv_data_type is not None else q_dtype,
            window_left,
            float(logits_soft_cap or 0.0),
        )
        self._compile(geometry)
        self._schedule(qo_indptr, paged_kv_indptr, lengths)
        scale = sm_scale or head_dim_qk**-0.5
        self._launch = Launch(scale, causal=causal, window_left=window_left, softcap=geometry.softcap)

    begin_forward = plan

    def _keep_mask(self, function: str, mask: torch.Tensor | None, queries: list[int], keys: list[int]) -> None:
        """Pack the mask into its buffer. In graph mode a buffer once bound is read whether or not it is filled."""
        if mask is None:
            if not self._use_cuda_graph:
                self._custom_mask_buf = self._mask_indptr_buf = None
            return
        contract.check_mask(function, mask, queries, keys)
        packed, starts = pack_mask(mask, queries, keys)
        if self._use_cuda_graph:
            for name, buffer, needed in (
                ("custom_mask_buf", self._custom_mask_buf, len(packed)),
                ("mask_indptr_buf", self._mask_indptr_buf, len(starts)),
            ):
                room = -1 if buffer is None else len(buffer)
                require(needed <= room, function, name, f"has room for {room} entries, the mask takes {needed}")
        self._fill("_custom_mask_buf", packed)
        self._fill("_mask_indptr_buf", starts)

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: KVCache,
        *args: object,
        k_scale: float | None = None,
        v_scale: float | None = None,
        return_lse: bool = False,
        window_left: int | None = None,
        sinks: torch.Tensor | None = None,
        **options: Any,
    ) -> torch.Tensor | Answer:
        """The answer [T, H, D], or that and LSE [T, H] in base 2. Options of flashinfer's that are not here are gaps."""
        require_absent(f"{type(self).__name__}.run", **options, args=args or None)
        launch = replace(self._launch, mask=self._custom_mask_buf, mask_starts=self._mask_indptr_buf)
        out, lse = self._run(q, paged_kv_cache, launch.at_run(k_scale, v_scale, window_left, sinks))
        return (out, lse) if return_lse else out

    def forward_return_lse(
        self,
        q: torch.Tensor,
        paged_kv_cache: KVCache,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        k_scale: float | None = None,
        v_scale: float | None = None,
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
        answer = self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale, return_lse=True)
        assert isinstance(answer, tuple)
        return answer

    def forward(self, q: torch.Tensor, paged_kv_cache: KVCache, *args: Any, **options: Any) -> torch.Tensor:
        """The answer of ``forward_return_lse`` without its LSE."""
        return self.forward_return_lse(q, paged_kv_cache, *args, **options)[0]
