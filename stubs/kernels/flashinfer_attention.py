"""What flashinfer's planned kernels compute, in plain torch: each checks what it was launched with, then attends."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate

import torch

from stubs.kernels import flashinfer_contract as contract
from stubs.kernels.attention import Rules, attend, visible
from stubs.kernels.contract import ContractBreach, require
from stubs.kernels.door import closed_kernel
from stubs.kernels.flashinfer_plan import PlannedKernel, Schedule, unpack_mask

Answer = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Launch:
    """What a run decides beside its tensors. ``mask`` and ``mask_starts`` are packed bits; with them causal is void."""

    scale: float
    value_scale: float = 1.0
    causal: bool = False
    window_left: int = -1
    softcap: float = 0.0
    mask: torch.Tensor | None = None
    mask_starts: torch.Tensor | None = None
    sinks: torch.Tensor | None = None

    def at_run(
        self, k_scale: float | None, v_scale: float | None, window_left: int | None, sinks: torch.Tensor | None
    ) -> Launch:
        """With what a run over paged KV says for itself; None: as planned, or a scale of 1."""
        return replace(
            self,
            scale=self.scale * (1.0 if k_scale is None else k_scale),
            value_scale=1.0 if v_scale is None else v_scale,
            window_left=self.window_left if window_left is None else window_left,
            sinks=sinks,
        )


@closed_kernel
def attend_pages(
    kernel: PlannedKernel,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    qo_indptr: torch.Tensor | None,
    kv_indptr: torch.Tensor,
    kv_indices: torch.Tensor,
    last_page_len: torch.Tensor,
    launch: Launch,
) -> Answer:
    """Attention of q [T, H, D] over a paged cache [pages, page, kv heads, D], as planned; (output, LSE [T, H] base 2).

    The arrays are the device's: they must say what was planned, but of a request planned with one key at most, which is
    one chunk of work whatever they say: that is what SGLang fills the padded rows of a captured graph with. ``qo_indptr``
    None means one row a request. Raises ContractBreach.
    """
    schedule, geometry, function = _planned(kernel), kernel.geometry, kernel.function
    if qo_indptr is not None:
        contract.check_same(function, "qo_indptr", schedule.queries, qo_indptr)
    contract.check_same(function, "paged_kv_indptr", _pages_but_of_padding(schedule, kv_indptr), kv_indptr)
    names = ("paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")
    lengths = contract.check_pages(function, names, kv_indptr, kv_indices, last_page_len, geometry.page_size)
    for request, (planned, found) in enumerate(zip(schedule.lengths, lengths, strict=True)):
        if planned != found and planned > 1:
            detail = f"leaves {found} keys on the device, {planned} were planned"
            raise ContractBreach(function, "paged_kv_last_page_len", detail, request)
    schedule = replace(schedule, pages=kv_indptr.tolist(), lengths=lengths)
    rows = schedule.queries[-1]
    contract.check_query(function, q, rows, geometry.heads, geometry.kv_heads, geometry.head_dim, geometry.q_dtype)
    trailing = (geometry.page_size, geometry.kv_heads, geometry.head_dim)
    contract.check_keys(function, "k_cache", k_cache, trailing, geometry.kv_dtype)
    contract.check_keys(function, "v_cache", v_cache, (*trailing[:2], geometry.value_dim), geometry.kv_dtype)
    contract.check_ids(function, "paged_kv_indices", kv_indices, schedule.pages, min(len(k_cache), len(v_cache)))
    pages, slots = _places(schedule, kv_indices, geometry.page_size)
    return _attend(kernel, schedule, q, k_cache[pages, slots], v_cache[pages, slots], launch)


@closed_kernel
def attend_rows(
    kernel: PlannedKernel,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    qo_indptr: torch.Tensor,
    kv_indptr: torch.Tensor,
    launch: Launch,
) -> Answer:
    """Attention of packed q [T, H, D] over packed k [S, kv heads, D], v [S, kv heads, Dv]; the answer as above."""
    schedule, geometry, function = _planned(kernel), kernel.geometry, kernel.function
    contract.check_same(function, "qo_indptr", schedule.queries, qo_indptr)
    contract.check_same(function, "kv_indptr", schedule.pages, kv_indptr)
    rows = schedule.queries[-1]
    contract.check_query(function, q, rows, geometry.heads, geometry.kv_heads, geometry.head_dim, geometry.q_dtype)
    contract.check_keys(function, "k", k, (geometry.kv_heads, geometry.head_dim), geometry.kv_dtype)
    contract.check_keys(function, "v", v, (geometry.kv_heads, geometry.value_dim), geometry.kv_dtype)
    for name, tensor in (("k", k), ("v", v)):
        held, end = tensor.shape[0], schedule.pages[-1]
        require(held == end, function, name, f"has {held} rows, kv_indptr ends at {end}")
    columns = torch.arange(max(schedule.lengths, default=0))[None]
    places = torch.tensor(schedule.pages[:-1])[:, None] + columns
    places = places.clamp(max=max(k.shape[0] - 1, 0))  # past a request's end: masked, only has to exist
    return _attend(kernel, schedule, q, k[places], v[places], launch)


@closed_kernel
def merge_state(
    v_a: torch.Tensor, s_a: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Join two partial attentions [T, H, D] by their LSE [T, H] in base 2. Two empty ones give 0 and -inf."""
    contract.check_merge(v_a, s_a, v_b, s_b)
    most = torch.maximum(s_a.float(), s_b.float())
    top = torch.where(most == float("-inf"), 0.0, most)
    weight_a, weight_b = torch.exp2(s_a.float() - top), torch.exp2(s_b.float() - top)
    total = weight_a + weight_b
    part = torch.where(total > 0, 1 / total, 0.0)
    value = v_a.float() * (weight_a * part)[..., None] + v_b.float() * (weight_b * part)[..., None]
    return value.to(v_a.dtype), top + torch.log2(total)


def _planned(kernel: PlannedKernel) -> Schedule:
    if kernel.schedule is None:
        raise ContractBreach(kernel.function, "plan", "run came before it")
    return kernel.schedule


def _pages_but_of_padding(schedule: Schedule, kv_indptr: torch.Tensor) -> list[int]:
    """Cumulative pages as planned; of a request planned with one key at most as the device has them."""
    device = kv_indptr.tolist()
    if len(device) != len(schedule.pages):
        return schedule.pages
    held = [
        pages if planned > 1 else found
        for planned, pages, found in zip(
            schedule.lengths, contract.lengths_of(schedule.pages), contract.lengths_of(device), strict=True
        )
    ]
    return list(accumulate(held, initial=schedule.pages[0]))


def _places(schedule: Schedule, indices: torch.Tensor, page: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Page id and slot within it of every key, both int64 [requests, longest]; past a request's end page 0."""
    columns = torch.arange(max(schedule.lengths, default=0))[None]
    entry = torch.tensor(schedule.pages[:-1], dtype=torch.int64)[:, None] + columns // page
    live = columns < torch.tensor(schedule.lengths)[:, None]
    ids = indices[entry.clamp(max=max(len(indices) - 1, 0))].long() if len(indices) else torch.zeros_like(entry)
    return torch.where(live, ids, 0), (columns % page).expand_as(ids)


def _attend(
    kernel: PlannedKernel, schedule: Schedule, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, launch: Launch
) -> Answer:
    geometry, counts, lengths = kernel.geometry, schedule.counts, schedule.lengths
    contract.check_softcap(kernel.function, launch.softcap, geometry.softcap)
    mask = None
    if launch.mask is not None and launch.mask_starts is not None:
        mask = unpack_mask(kernel.function, launch.mask, launch.mask_starts, counts, lengths)
    rules = Rules(
        scale=launch.scale,
        causal=launch.causal and mask is None,
        left=launch.window_left,
        softcap=launch.softcap,
        sinks=launch.sinks,
        mask=mask,
    )
    if launch.window_left >= 0 and not geometry.has_window:
        _check_window(kernel.function, counts, lengths, rules)
    out = q.new_full((*q.shape[:2], values.shape[-1]), float("nan"))
    lse = torch.full((q.shape[1], q.shape[0]), float("nan"))
    attend(q, None, keys, values, schedule.queries[:-1], counts, lengths, rules, out, lse)
    if launch.value_scale != 1.0:
        out *= launch.value_scale
    return out, lse.T.contiguous() / math.log(2)


def _check_window(function: str, counts: list[int], lengths: list[int], rules: Rules) -> None:
    """Compare what the queries see with and without a window that was not planned."""
    longest, width = max(counts, default=0), max(lengths, default=0)
    shape = torch.tensor(counts), torch.tensor(lengths), longest, width
    live = torch.arange(longest)[None, :, None] < torch.tensor(counts)[:, None, None]
    free, limited = (visible(*shape, some) & live for some in (replace(rules, left=-1), rules))
    contract.check_window(function, rules.left, free, limited)
