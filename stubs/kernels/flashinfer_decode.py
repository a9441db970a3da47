"""Stand-ins for flashinfer's decode wrapper and for its plan without copies, which graphs use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from stubs.kernels import flashinfer_contract as contract
from stubs.kernels.contract import ContractBreach, require, require_absent
from stubs.kernels.flashinfer_attention import Answer, Launch
from stubs.kernels.flashinfer_plan import Geometry, dtype_of
from stubs.kernels.flashinfer_wrappers import KVCache, PagedWrapper, launched, refuse_encoding

FAST = "fast_decode_plan"
NAMES = ("indptr", "indices", "last_page_len")
_GROUPS_COMPILED = (1, 2, 4, 8)  # q heads over kv heads that the decode kernel without tensor cores exists for


class BatchDecodeWithPagedKVCacheWrapper(PagedWrapper):
    """Attention of one row a request over a paged cache."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: torch.Tensor | None = None,
        paged_kv_indices_buffer: torch.Tensor | None = None,
        paged_kv_last_page_len_buffer: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: object = None,
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, backend)
        require_absent(type(self).__name__, jit_args=jit_args)
        self.use_tensor_cores = use_tensor_cores
        if use_cuda_graph:
            self._bind(
                paged_kv_indptr_buf=paged_kv_indptr_buffer,
                paged_kv_indices_buf=paged_kv_indices_buffer,
                paged_kv_last_page_len_buf=paged_kv_last_page_len_buffer,
            )

    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        pos_encoding_mode: str = "NONE",
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: str | torch.dtype | None = "float16",
        kv_data_type: str | torch.dtype | None = None,
        o_data_type: str | torch.dtype | None = None,
        data_type: str | torch.dtype | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        non_blocking: bool = True,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        **options: Any,
    ) -> None:
        """Plan a batch: indptr int32 [B + 1], indices int32, last_page_len int32 [B].

        Raises ContractBreach, and StandInGap for what SGLang does not use.
        """
        function = f"{type(self).__name__}.plan"
        require_absent(function, **options)
        refuse_encoding(function, pos_encoding_mode)
        contract.check_heads(function, num_qo_heads, num_kv_heads)
        lengths = contract.check_pages(function, NAMES, indptr, indices, last_page_len, page_size)
        if self._use_cuda_graph:
            self._check_bound(function, len(lengths), len(lengths), indices)
        if fixed_split_size is not None:
            require(self.use_tensor_cores, function, "fixed_split_size", "is set, but only tensor cores can split so")
        for name, value in zip(NAMES, (indptr, indices, last_page_len), strict=True):
            self._fill(f"_paged_kv_{name}_buf", value)
        q_dtype = dtype_of(q_data_type or data_type or "float16")
        kv_dtype = dtype_of(kv_data_type or data_type or q_dtype)
        softcap = float(logits_soft_cap or 0.0)
        dims = num_qo_heads, num_kv_heads, head_dim, head_dim, page_size
        self._compile(Geometry(*dims, q_dtype, kv_dtype, window_left, softcap))
        self._schedule(_one_row_each(len(lengths)), indptr, lengths)
        self._launch = Launch(sm_scale or head_dim**-0.5, window_left=window_left, softcap=softcap)

    begin_forward = plan

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: KVCache,
        *args: object,
        q_scale: float | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        return_lse: bool = False,
        window_left: int | None = None,
        sinks: torch.Tensor | None = None,
        **options: Any,
    ) -> torch.Tensor | Answer:
        """The answer [B, H, D], or that and LSE [B, H] in base 2. Options of flashinfer's that are not here are gaps."""
        require_absent(f"{type(self).__name__}.run", **options, args=args or None)
        launch = replace(self._launch, scale=self._launch.scale * (1.0 if q_scale is None else q_scale))
        out, lse = self._run(q, paged_kv_cache, launch.at_run(k_scale, v_scale, window_left, sinks))
        return (out, lse) if return_lse else out

    def forward_return_lse(
        self,
        q: torch.Tensor,
        paged_kv_cache: KVCache,
        pos_encoding_mode: str = "NONE",
        q_scale: float | None = None,
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
        options = {"sm_scale": sm_scale, "window_left": window_left, "logits_soft_cap": logits_soft_cap}
        self._launch = launched(self._launch, q.shape[-1], **options)  # type: ignore[arg-type]
        answer = self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=True)
        assert isinstance(answer, tuple)
        return answer

    def forward(self, q: torch.Tensor, paged_kv_cache: KVCache, *args: Any, **options: Any) -> torch.Tensor:
        """The answer of ``forward_return_lse`` without its LSE."""
        return self.forward_return_lse(q, paged_kv_cache, *args, **options)[0]


def fast_decode_plan(
    wrapper: BatchDecodeWithPagedKVCacheWrapper,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    last_page_len: torch.Tensor,
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim: int,
    page_size: int,
    pos_encoding_mode: str = "NONE",
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    q_data_type: str | torch.dtype | None = None,
    kv_data_type: str | torch.dtype | None = None,
    data_type: str | torch.dtype | None = None,
    sm_scale: float | None = None,
    rope_scale: float | None = None,
    rope_theta: float | None = None,
    non_blocking: bool = True,
    fixed_split_size: int | None = None,
    disable_split_kv: bool = False,
    q_len_per_req: int = 1,
    global_override_indptr_cpu: torch.Tensor | None = None,
) -> None:
    """Plan once more without filling the graph's buffers: the caller has written them.

    Only the host's indptr is read, the one given or a copy of the device's; at run both must agree.
    """
    kernel = wrapper._cached_module
    if kernel is None:
        raise ContractBreach(FAST, "plan", "there was none before it")
    require(q_len_per_req == 1, FAST, "q_len_per_req", f"is {q_len_per_req}, the wrapper was planned for 1")
    batch, rows = len(last_page_len), _one_row_each(len(last_page_len))
    if wrapper.is_cuda_graph_enabled:
        wrapper._check_bound(FAST, batch, batch, indices)
    else:
        wrapper._paged_kv_indptr_buf = indptr
        wrapper._paged_kv_indices_buf = indices
        wrapper._paged_kv_last_page_len_buf = last_page_len
    given = indptr.cpu() if global_override_indptr_cpu is None else global_override_indptr_cpu
    name = "indptr" if global_override_indptr_cpu is None else "global_override_indptr_cpu"
    pages = contract.lengths_of(contract.check_indptr(FAST, name, given, batch))
    last = contract.check_ints(FAST, "last_page_len", last_page_len)
    wrapper._schedule(rows, given, [(n - 1) * page_size + m if n else 0 for n, m in zip(pages, last, strict=True)])
    softcap = float(logits_soft_cap or 0.0)
    wrapper._launch = Launch(sm_scale or head_dim**-0.5, window_left=window_left, softcap=softcap)


def _grouped_size_compiled_for_decode_kernels(num_qo_heads: int, num_kv_heads: int) -> bool:
    """Whether decode without tensor cores has a kernel for so many q heads over a kv head."""
    return num_qo_heads // num_kv_heads in _GROUPS_COMPILED


def _one_row_each(batch: int) -> torch.Tensor:
    return torch.arange(batch + 1, dtype=torch.int32)
