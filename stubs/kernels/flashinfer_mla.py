"""Stand-in for flashinfer's wrapper of latent attention over a paged cache: plans on the host, then runs.

Read from flashinfer 0.6.8 to 0.7.2's Python wrapper and from SGLang's calls of it; not checked against the kernels. A plan is
made of host arrays, and the kernel reads nothing but page ids on the device. Differences: float32, any latent and any
rotary width are allowed; LSE is in base 2, which is the wrapper's own default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from stubs.kernels import flashinfer_contract as contract
from stubs.kernels.attention import Rules, attend
from stubs.kernels.contract import ContractBreach, require, require_absent
from stubs.kernels.door import closed_kernel
from stubs.kernels.flashinfer_attention import Answer
from stubs.kernels.latent_contract import check_output, check_query, check_rows

NAME = "BatchMLAPagedAttentionWrapper"
PLAN, RUN = f"{NAME}.plan", f"{NAME}.run"


@dataclass(frozen=True, slots=True)
class LatentGeometry:
    """What the kernel is compiled for: widths of latent and rotary key in columns, pages in tokens."""

    latent: int
    rotary: int
    page: int
    q_dtype: torch.dtype
    kv_dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class LatentSchedule:
    """What a plan leaves in the integer workspace: query rows and pages so far, keys of each request, heads."""

    queries: list[int]
    pages: list[int]
    lengths: list[int]
    heads: int


class PlannedLatent:
    """The compiled kernel with its integer workspace; the plan made last is what its next launch runs by."""

    def __init__(self, geometry: LatentGeometry, batch: int | None) -> None:
        self.geometry = geometry
        self.batch = batch  # fixed by the buffers of a graph; None without one
        self.schedule: LatentSchedule | None = None

    def plan(
        self,
        float_workspace: torch.Tensor,
        int_workspace: torch.Tensor,
        pinned_workspace: torch.Tensor,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_lengths: torch.Tensor,
        num_heads: int,
        head_dim_ckv: int,
        causal: bool,
    ) -> LatentSchedule:
        """A schedule from host arrays: both ``indptr`` int32 [B + 1], ``kv_lengths`` int32 [B]. Raises ContractBreach.

        SGLang's plans that need no synchronisation call it with what they know on the host.
        """
        named = {"qo_indptr": qo_indptr, "kv_indptr": kv_indptr, "kv_len_arr": kv_lengths}
        for name, tensor in named.items():
            require(
                tensor.device.type == "cpu", PLAN, name, f"is on {tensor.device}, expected on the host", rule="device"
            )
        lengths = contract.check_ints(PLAN, "kv_len_arr", kv_lengths)
        queries = contract.check_indptr(PLAN, "qo_indptr", qo_indptr, len(lengths))
        pages = contract.check_indptr(PLAN, "kv_indptr", kv_indptr, len(lengths))
        size, width = self.geometry.page, self.geometry.latent
        require(head_dim_ckv == width, PLAN, "head_dim_ckv", f"is {head_dim_ckv}, the kernel is for {width}")
        require(num_heads > 0, PLAN, "num_heads", f"is {num_heads}")
        fixed = self.batch
        require(
            fixed is None or len(lengths) == fixed,
            PLAN,
            "kv_len_arr",
            f"has {len(lengths)} entries, the graph's buffers are for {fixed}",
            rule="entries",
        )
        rows = zip(contract.lengths_of(pages), lengths, strict=True)
        for request, (held, length) in enumerate(rows):
            if length < 0 or -(-length // size) != held:
                raise ContractBreach(PLAN, "kv_len_arr", f"is {length}, kv_indptr says {held} pages of {size}", request)
        self.schedule = LatentSchedule(queries, pages, lengths, num_heads)
        return self.schedule


class BatchMLAPagedAttentionWrapper:
    """Absorbed attention of all heads over one latent row a token."""

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        use_cuda_graph: bool = False,
        qo_indptr: torch.Tensor | None = None,
        kv_indptr: torch.Tensor | None = None,
        kv_indices: torch.Tensor | None = None,
        kv_len_arr: torch.Tensor | None = None,
        backend: str = "auto",
    ) -> None:
        bytes_ = float_workspace_buffer.dtype in (torch.uint8, torch.int8)
        require(
            bytes_,
            NAME,
            "float_workspace_buffer",
            f"is {float_workspace_buffer.dtype}, expected uint8 or int8",
            rule="dtype",
        )
        self.device = float_workspace_buffer.device
        self._float_workspace_buffer = float_workspace_buffer
        self._int_workspace_buffer = torch.empty(0, dtype=torch.uint8, device=self.device)
        self._pin_memory_int_workspace_buffer = torch.empty(0, dtype=torch.uint8)
        self._use_cuda_graph = use_cuda_graph
        self._backend = "fa2" if backend == "auto" else backend
        self._qo_indptr_buf, self._kv_indptr_buf = qo_indptr, kv_indptr
        self._kv_indices_buf, self._kv_len_arr_buf = kv_indices, kv_len_arr
        self._cached_module: PlannedLatent | None = None
        self._plan_info: object = None
        self._causal, self._page_size, self._sm_scale = False, 1, 0.0
        if use_cuda_graph:
            self._check_bound()

    def _check_bound(self) -> None:
        """The buffers that a graph reads are there, int32, and fit each other."""
        bound = {
            "qo_indptr": self._qo_indptr_buf,
            "kv_indptr": self._kv_indptr_buf,
            "kv_indices": self._kv_indices_buf,
            "kv_len_arr": self._kv_len_arr_buf,
        }
        entries = {}
        for name, buffer in bound.items():
            if buffer is None:
                raise ContractBreach(NAME, name, "is no tensor in graph mode", rule="missing")
            require(buffer.dtype == torch.int32, NAME, name, f"is {buffer.dtype}, expected torch.int32", rule="dtype")
            entries[name] = len(buffer)
        batch = entries["kv_len_arr"]
        for name in ("qo_indptr", "kv_indptr"):
            require(
                entries[name] == batch + 1,
                NAME,
                name,
                f"has {entries[name]} entries for {batch} requests",
                rule="entries",
            )

    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor,
        kv_len_arr: torch.Tensor,
        num_heads: int,
        head_dim_ckv: int,
        head_dim_kpe: int,
        page_size: int,
        causal: bool,
        sm_scale: float,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        use_profiler: bool = False,
    ) -> None:
        """Plan a batch: both ``indptr`` int32 [B + 1], ``kv_len_arr`` int32 [B], ``kv_indices`` int32 page ids.

        Raises ContractBreach.
        """
        require_absent(PLAN, use_profiler=use_profiler or None)
        require(
            kv_indices.dtype == torch.int32,
            PLAN,
            "kv_indices",
            f"is {kv_indices.dtype}, expected torch.int32",
            rule="dtype",
        )
        require(
            kv_indices.dim() == 1,
            PLAN,
            "kv_indices",
            f"{tuple(kv_indices.shape)}, expected one dimension",
            rule="shape",
        )
        end, held = int(kv_indptr[-1]), len(kv_indices)
        require(held >= end, PLAN, "kv_indices", f"has {held} entries, kv_indptr ends at {end}")
        geometry = LatentGeometry(head_dim_ckv, head_dim_kpe, page_size, q_data_type, kv_data_type)
        self._causal, self._page_size, self._sm_scale = causal, page_size, sm_scale
        if self._cached_module is None or self._cached_module.geometry != geometry:
            batch = len(self._kv_len_arr_buf) if self._use_cuda_graph and self._kv_len_arr_buf is not None else None
            self._cached_module = PlannedLatent(geometry, batch)
        workspaces = self._float_workspace_buffer, self._int_workspace_buffer, self._pin_memory_int_workspace_buffer
        arrays = qo_indptr.cpu(), kv_indptr.cpu(), kv_len_arr.cpu()
        self._plan_info = self._cached_module.plan(*workspaces, *arrays, num_heads, head_dim_ckv, causal)
        self._fill(qo_indptr, kv_indptr, kv_indices, kv_len_arr)

    def _fill(
        self, qo_indptr: torch.Tensor, kv_indptr: torch.Tensor, kv_indices: torch.Tensor, kv_len_arr: torch.Tensor
    ) -> None:
        """Into the bound buffers, or in eager mode kept as they are."""
        if not self._use_cuda_graph:
            self._qo_indptr_buf, self._kv_indptr_buf = qo_indptr.to(self.device), kv_indptr.to(self.device)
            self._kv_indices_buf, self._kv_len_arr_buf = kv_indices.to(self.device), kv_len_arr.to(self.device)
            return
        assert self._qo_indptr_buf is not None and self._kv_indptr_buf is not None
        assert self._kv_indices_buf is not None and self._kv_len_arr_buf is not None
        held, room = len(kv_indices), len(self._kv_indices_buf)
        require(held <= room, PLAN, "kv_indices", f"has {held} entries, its buffer {room}", rule="room")
        self._qo_indptr_buf.copy_(qo_indptr)
        self._kv_indptr_buf.copy_(kv_indptr)
        self._kv_indices_buf[:held].copy_(kv_indices)
        self._kv_len_arr_buf.copy_(kv_len_arr)

    def run(
        self,
        q_nope: torch.Tensor,
        q_pe: torch.Tensor,
        ckv_cache: torch.Tensor,
        kpe_cache: torch.Tensor,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        profiler_buffer: torch.Tensor | None = None,
        kv_len: torch.Tensor | None = None,
        page_table: torch.Tensor | None = None,
        return_lse_base_on_e: bool = False,
    ) -> torch.Tensor | Answer:
        """The answer [T, H, latent] of q_nope [T, H, latent] and q_pe [T, H, rotary], or that and LSE [T, H] in base 2.

        ``ckv_cache`` [pages, page, latent] and ``kpe_cache`` [pages, page, rotary]. Raises ContractBreach.
        """
        require_absent(
            RUN,
            lse=lse,
            profiler_buffer=profiler_buffer,
            kv_len=kv_len,
            page_table=page_table,
            return_lse_base_on_e=return_lse_base_on_e or None,
        )
        if self._cached_module is None or self._kv_indices_buf is None:
            raise ContractBreach(RUN, "plan", "run came before it")
        rules = Rules(scale=self._sm_scale, causal=self._causal)
        answer = attend_latent(
            self._cached_module, q_nope, q_pe, ckv_cache, kpe_cache, self._kv_indices_buf, rules, out
        )
        return answer if return_lse else answer[0]


@closed_kernel
def attend_latent(
    kernel: PlannedLatent,
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    ckv_cache: torch.Tensor,
    kpe_cache: torch.Tensor,
    kv_indices: torch.Tensor,
    rules: Rules,
    out: torch.Tensor | None,
) -> Answer:
    """One launch of the planned kernel."""
    schedule, geometry = kernel.schedule, kernel.geometry
    assert schedule is not None, "a kernel is kept once it is planned"
    heads = schedule.heads
    check_query(RUN, "q_nope", q_nope, (heads, geometry.latent), geometry.q_dtype)
    check_query(RUN, "q_pe", q_pe, (heads, geometry.rotary), geometry.q_dtype)
    for name, q in (("q_nope", q_nope), ("q_pe", q_pe)):
        held, end = q.shape[0], schedule.queries[-1]
        require(held == end, RUN, name, f"has {held} rows, qo_indptr ends at {end}")
    check_rows(RUN, "ckv_cache", ckv_cache, geometry.page, geometry.latent, geometry.kv_dtype)
    check_rows(RUN, "kpe_cache", kpe_cache, geometry.page, geometry.rotary, geometry.kv_dtype)
    contract.check_ids(RUN, "kv_indices", kv_indices, schedule.pages, min(len(ckv_cache), len(kpe_cache)))
    answer = check_output(RUN, out, tuple(q_nope.shape), q_nope)
    columns = torch.arange(max(schedule.lengths, default=0))[None]
    entry = torch.tensor(schedule.pages[:-1], dtype=torch.int64)[:, None] + columns // geometry.page
    live = columns < torch.tensor(schedule.lengths, dtype=torch.int64)[:, None]
    page = (
        torch.where(live, kv_indices[entry.clamp(max=max(len(kv_indices) - 1, 0))].long(), 0) if live.numel() else entry
    )
    slot = (columns % geometry.page).expand_as(page)
    latent, rotary = (cache[page, slot][:, :, None] for cache in (ckv_cache, kpe_cache))
    lse = torch.full((heads, q_nope.shape[0]), float("nan"))
    counts = contract.lengths_of(schedule.queries)
    attend(q_pe, q_nope, rotary, latent, schedule.queries[:-1], counts, schedule.lengths, rules, answer, lse)
    return answer, lse.T.contiguous() / math.log(2)
