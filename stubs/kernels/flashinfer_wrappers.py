"""What stand-ins for flashinfer's paged wrappers share: buffers bound to a graph, the planned kernel, its launch.

Read from flashinfer 0.6.8 to 0.7.2, the versions that SGLang 0.5.11 to 0.5.23 pin: their Python wrappers for the
arguments, attention/variants.cuh and cascade.cuh for what the FA2 kernels do with them. In graph mode a wrapper reads
the buffers it was bound to, and what it plans on the host takes effect at the next launch, captured or not.
Differences: float32 and any head dim are allowed; of position encodings and multi-item scoring there is nothing.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from stubs.kernels.contract import StandInGap, require
from stubs.kernels.flashinfer_attention import Answer, Launch, attend_pages
from stubs.kernels.flashinfer_plan import Geometry, PlannedKernel

KVCache = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


class PagedWrapper:
    """What the prefill and the decode wrapper share: bound buffers, the planned kernel, the options of a run."""

    def __init__(self, workspace: torch.Tensor, kv_layout: str, use_cuda_graph: bool, backend: str) -> None:
        check_workspace(type(self).__name__, workspace, kv_layout)
        self._kv_layout = kv_layout
        self._use_cuda_graph = use_cuda_graph
        self._backend = "fa2" if backend == "auto" else backend
        self.device = workspace.device
        self._float_workspace_buffer = workspace
        self._int_workspace_buffer = torch.empty(0, dtype=torch.uint8, device=workspace.device)
        self._pin_memory_int_workspace_buffer = torch.empty(0, dtype=torch.uint8)
        self._max_total_num_rows: int | None = None
        self._fixed_batch_size = 0
        self._cached_module: PlannedKernel | None = None
        self._plan_info: object = None
        self._qo_indptr_buf: torch.Tensor | None = None
        self._paged_kv_indptr_buf: torch.Tensor | None = None
        self._paged_kv_indices_buf: torch.Tensor | None = None
        self._paged_kv_last_page_len_buf: torch.Tensor | None = None
        self._custom_mask_buf: torch.Tensor | None = None
        self._mask_indptr_buf: torch.Tensor | None = None
        self._launch = Launch(scale=0.0)

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return self._use_cuda_graph

    def _bind(self, **buffers: torch.Tensor | None) -> None:
        """Take the buffers that a graph will read; ``None`` is refused."""
        for name, buffer in buffers.items():
            require(
                isinstance(buffer, torch.Tensor),
                type(self).__name__,
                name,
                "is no tensor in graph mode",
                rule="missing",
            )
            setattr(self, f"_{name}", buffer)
        assert self._paged_kv_indptr_buf is not None and self._paged_kv_last_page_len_buf is not None
        self._fixed_batch_size = len(self._paged_kv_last_page_len_buf)
        entries, name = len(self._paged_kv_indptr_buf), "paged_kv_indptr_buf"
        expected = self._fixed_batch_size + 1
        require(
            entries == expected,
            type(self).__name__,
            name,
            f"has {entries} entries, expected {expected}",
            rule="entries",
        )

    def _compile(self, geometry: Geometry) -> PlannedKernel:
        """The kernel for ``geometry``; one that is bound to a graph stays the same object."""
        kernel = self._cached_module
        if kernel is None or kernel.geometry != geometry:
            kernel = PlannedKernel(type(self).__name__, geometry)
        self._cached_module = kernel
        return kernel

    def _check_bound(self, function: str, batch: int, rows: int, indices: torch.Tensor) -> None:
        """What was fixed when the graph's buffers were bound or first planned."""
        assert self._paged_kv_indices_buf is not None
        fixed, most, room = self._fixed_batch_size, self._max_total_num_rows, len(self._paged_kv_indices_buf)
        require(
            batch == fixed,
            function,
            "paged_kv_last_page_len",
            f"has {batch} entries, the graph is for {fixed}",
            rule="entries",
        )
        require(
            most is None or rows <= most,
            function,
            "qo_indptr",
            f"ends at {rows}, first planned were {most} rows",
            rule="end",
        )
        held = len(indices)
        require(held <= room, function, "paged_kv_indices", f"has {held} entries, its buffer {room}", rule="room")
        self._max_total_num_rows = rows if most is None else most

    def _fill(self, name: str, value: torch.Tensor) -> None:
        """Put ``value`` into the bound buffer, or in eager mode keep it as it is."""
        buffer: torch.Tensor | None = getattr(self, name)
        if not self._use_cuda_graph:
            setattr(self, name, value.to(self.device))
        elif buffer is not None and buffer.data_ptr() != value.data_ptr():
            buffer[: len(value)].copy_(value)

    def _schedule(self, qo_indptr: torch.Tensor, kv_indptr: torch.Tensor, lengths: list[int]) -> None:
        assert self._cached_module is not None
        host = torch.tensor(lengths, dtype=torch.int32)
        workspaces = (self._float_workspace_buffer, self._int_workspace_buffer, self._pin_memory_int_workspace_buffer)
        arrays = (qo_indptr.cpu(), kv_indptr.cpu(), host)
        rows = self._max_total_num_rows or int(arrays[0][-1])
        self._plan_info = self._cached_module.plan(*workspaces, *arrays, rows, len(lengths))

    def _run(self, q: torch.Tensor, cache: KVCache, launch: Launch) -> Answer:
        function = type(self).__name__
        if self._cached_module is None:
            require(False, function, "plan", "run came before it")
        assert self._cached_module is not None
        assert self._paged_kv_indptr_buf is not None and self._paged_kv_indices_buf is not None
        assert self._paged_kv_last_page_len_buf is not None
        k_cache, v_cache = unpack_cache(function, cache, self._kv_layout)
        return attend_pages(
            self._cached_module,
            q,
            k_cache,
            v_cache,
            self._qo_indptr_buf,
            self._paged_kv_indptr_buf,
            self._paged_kv_indices_buf,
            self._paged_kv_last_page_len_buf,
            launch,
        )

    def end_forward(self) -> None:
        """Nothing, as in flashinfer, which kept it for old callers."""


def check_workspace(function: str, workspace: torch.Tensor, kv_layout: str) -> None:
    """Bytes to work in, and a layout there is."""
    bytes_ = workspace.dtype in (torch.uint8, torch.int8)
    require(bytes_, function, "float_workspace_buffer", f"is {workspace.dtype}, expected uint8 or int8", rule="dtype")
    require(kv_layout in ("NHD", "HND"), function, "kv_layout", f"is {kv_layout!r}, expected NHD or HND")


def unpack_cache(function: str, cache: KVCache, kv_layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V as [pages, page, kv heads, D] views, of a pair of tensors or of one [pages, 2, ...].

    A cache without a page dimension has pages of one slot, as flashinfer reads it.
    """
    if isinstance(cache, tuple):
        pair = cache
    else:
        halves = cache.dim() == 5 and cache.shape[1] == 2
        require(
            halves,
            function,
            "paged_kv_cache",
            f"{tuple(cache.shape)}, expected [pages, 2, ...] or a pair",
            rule="shape",
        )
        pair = cache[:, 0], cache[:, 1]
    views = []
    for name, tensor in zip(("k_cache", "v_cache"), pair, strict=True):
        shape = tuple(tensor.shape)
        require(
            tensor.dim() in (3, 4), function, name, f"{shape}, expected [pages, page, kv heads, head dim]", rule="shape"
        )
        paged = tensor.unsqueeze(1 if kv_layout == "NHD" else 2) if tensor.dim() == 3 else tensor
        views.append(paged if kv_layout == "NHD" else paged.transpose(1, 2))
    return views[0], views[1]


def refuse_encoding(function: str, pos_encoding_mode: str) -> None:
    if pos_encoding_mode != "NONE":
        raise StandInGap(function, f"pos_encoding_mode {pos_encoding_mode}")


def launched(
    planned: Launch,
    head_dim: int,
    *,
    sm_scale: float | None,
    window_left: int,
    logits_soft_cap: float | None,
    causal: bool = False,
) -> Launch:
    """The options that flashinfer's old ``forward`` puts in the place of the planned ones."""
    scale = sm_scale or head_dim**-0.5
    softcap = float(logits_soft_cap or 0.0)
    return replace(planned, scale=scale, causal=causal, window_left=window_left, softcap=softcap)
