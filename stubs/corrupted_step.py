"""Applies a corruption to a step: copies of its ForwardBatch and of its layers' inputs with one thing wrong.

The step itself is left as it is, except req_to_token, which whoever runs a corrupted step puts back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch

from stubs.kv_memory import kv_memory
from stubs.plan import StepPlan
from stubs.tap import Tap

OUTSIDE = 5  # entries behind a pool's end: near, so that a kernel that goes there stays in memory of its own


class NotApplicable(Exception):
    """The step has nothing that this could be done to: no mask, or one request where it takes two."""


@dataclass(slots=True)
class Draft:
    """A step about to be corrupted: ``batch`` is a copy whose fields may be set, tensors are replaced and not written."""

    plan: StepPlan
    batch: Any
    taps: list[Tap]

    def set(self, name: str, value: Any) -> None:
        """Raises NotApplicable where this batch has no such field."""
        self.get(name)
        setattr(self.batch, name, value)

    def get(self, name: str) -> Any:
        value = getattr(self.batch, name, None)
        if value is None:
            raise NotApplicable(f"the batch has no {name}")
        return value

    def last(self, name: str, change: Callable[[int], int]) -> None:
        """Change the last element of a tensor, and of its host copy where there is one (a tensor or a list)."""
        for each in (name, f"{name}_cpu"):
            value = getattr(self.batch, each, None)
            if value is None and each == name:
                raise NotApplicable(f"the batch has no {name}")
            if isinstance(value, torch.Tensor):
                value = value.clone()
            elif value is not None:
                value = list(value)
            else:
                continue
            value[-1] = change(int(value[-1]))
            setattr(self.batch, each, value)

    def length(self, change: Callable[[int], int]) -> None:
        """Change the last request's length wherever it is told."""
        before = int(self.batch.seq_lens[-1])
        self.last("seq_lens", change)
        if self.batch.seq_lens_sum is not None:
            self.batch.seq_lens_sum += change(before) - before

    def entry(self, value: int) -> None:
        """Put ``value`` in place of the first slot of the last request in req_to_token."""
        self.plan.runner.req_to_token_pool.req_to_token[self.plan.rows[-1].live.row, 0] = value

    def layers(self, **change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Change q, k or v of every layer."""
        for index, tap in enumerate(self.taps):
            changed = {name: one(getattr(tap, name)) for name, one in change.items()}
            self.taps[index] = replace(tap, **changed)  # type: ignore[arg-type]  # q, k and v alone


def corrupt(name: str, plan: StepPlan, taps: Sequence[Tap]) -> tuple[StepPlan, list[Tap]]:
    """The step, eager, with the named corruption, and what its layers are given. Raises NotApplicable."""
    batch = copy(plan.forward_batch)
    batch.spec_info = copy(batch.spec_info)
    draft = Draft(plan, batch, list(taps))
    APPLY[name](draft)
    return replace(plan, forward_batch=batch, graph=None), draft.taps


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same values; each row lies twice as far from the next, and what is between would show."""
    wide = torch.full((len(tensor), 2, *tensor.shape[1:]), 1, dtype=tensor.dtype, device=tensor.device)
    wide[:, 0] = tensor
    return wide[:, 0]


def _wider(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.dtype == torch.float32 else tensor.float()


def _recast(name: str, dtype: torch.dtype) -> Callable[[Draft], None]:
    return lambda draft: draft.set(name, draft.get(name).to(dtype))


def _spread(name: str) -> Callable[[Draft], None]:
    return lambda draft: draft.set(name, _strided(draft.get(name)))


def _shortened(name: str) -> Callable[[Draft], None]:
    return lambda draft: draft.set(name, draft.get(name)[:-1].clone())


def _added(name: str, number: int) -> Callable[[Draft], None]:
    return lambda draft: draft.set(name, draft.get(name) + number)


def _length(change: Callable[[int], int]) -> Callable[[Draft], None]:
    return lambda draft: draft.length(change)


def _host_lengths(number: int) -> Callable[[Draft], None]:
    return lambda draft: draft.set("seq_lens_cpu", draft.get("seq_lens_cpu") + number)


def _past_row(draft: Draft) -> None:
    width = draft.plan.runner.req_to_token_pool.req_to_token.shape[1]
    draft.length(lambda length: width + OUTSIDE)


def _past_table(draft: Draft) -> None:
    rows = len(draft.plan.runner.req_to_token_pool.req_to_token)
    draft.last("req_pool_indices", lambda row: rows)


def _same_row(draft: Draft) -> None:
    if len(draft.plan.rows) < 2:
        raise NotApplicable("the step has one request")
    first = int(draft.batch.req_pool_indices[0])
    draft.last("req_pool_indices", lambda row: first)


def _pool_rows(draft: Draft) -> int:
    return max(len(buffer.tensor) for buffer in kv_memory(draft.plan.runner.token_to_kv_pool))


def _same_location(draft: Draft) -> None:
    if draft.plan.tokens < 2:
        raise NotApplicable("the step has one token")
    first = int(draft.batch.out_cache_loc[0])
    draft.last("out_cache_loc", lambda slot: first)


def _reversed_positions(draft: Draft) -> None:
    if draft.plan.tokens < 2:
        raise NotApplicable("the step has one token")
    draft.set("positions", draft.get("positions").flip(0))


def _long_prefixes(draft: Draft) -> None:
    for name in ("extend_prefix_lens", "extend_seq_lens"):
        _recast(name, torch.int64)(draft)


def _headless(draft: Draft) -> None:
    world = draft.plan.runner.world
    if world.num_heads < 2:
        raise NotApplicable("the model has one head")
    draft.layers(q=lambda q: q[:, : -world.head_dim].contiguous())


def _mask(draft: Draft) -> torch.Tensor:
    mask = getattr(draft.batch.spec_info, "custom_mask", None)
    if mask is None:
        raise NotApplicable("the step has no custom mask")
    return mask


def _short_mask(draft: Draft) -> None:
    """A row of the mask is a query over all keys of its request."""
    row = draft.plan.rows[-1]
    draft.batch.spec_info.custom_mask = _mask(draft)[: -(row.prefix + row.count)].clone()


def _no_mask(draft: Draft) -> None:
    _mask(draft)
    draft.batch.spec_info.custom_mask = None


def _int_mask(draft: Draft) -> None:
    draft.batch.spec_info.custom_mask = _mask(draft).to(torch.int32)


def _wide_draft(draft: Draft) -> None:
    if getattr(draft.batch.spec_info, "draft_token_num", None) is None:
        raise NotApplicable("the step has no draft")
    draft.batch.spec_info.draft_token_num += 1


# By the names of stubs.corruption.
APPLY: dict[str, Callable[[Draft], None]] = {
    "length_too_long": _length(lambda length: length + 2),
    "length_one_short": _length(lambda length: length - 1),
    "length_past_row": _past_row,
    "length_zero": _length(lambda length: 0),
    "length_negative": _length(lambda length: -1),
    "lengths_int32": _recast("seq_lens", torch.int32),
    "lengths_float": _recast("seq_lens", torch.float32),
    "lengths_strided": _spread("seq_lens"),
    "lengths_missing_one": _shortened("seq_lens"),
    "host_lengths_longer": _host_lengths(2),
    "host_lengths_shorter": _host_lengths(-1),
    "sum_too_small": _added("seq_lens_sum", -1),
    "sum_too_large": _added("seq_lens_sum", 5),
    "row_past_table": _past_table,
    "row_negative": lambda draft: draft.last("req_pool_indices", lambda row: -1),
    "row_duplicated": _same_row,
    "rows_int32": _recast("req_pool_indices", torch.int32),
    "rows_strided": _spread("req_pool_indices"),
    "slot_past_pool": lambda draft: draft.entry(_pool_rows(draft) + OUTSIDE),
    "slot_negative": lambda draft: draft.entry(-1),
    "location_past_pool": lambda draft: draft.last("out_cache_loc", lambda slot: _pool_rows(draft) + OUTSIDE),
    "locations_short": _shortened("out_cache_loc"),
    "locations_duplicated": _same_location,
    "locations_int32": _recast("out_cache_loc", torch.int32),
    "locations_strided": _spread("out_cache_loc"),
    "prefix_negative": lambda draft: draft.last("extend_prefix_lens", lambda prefix: -1),
    "prefix_too_long": lambda draft: draft.last("extend_prefix_lens", lambda prefix: prefix + 1),
    "extend_row_empty": lambda draft: draft.last("extend_seq_lens", lambda count: 0),
    "start_shifted": lambda draft: draft.last("extend_start_loc", lambda start: start + 1),
    "tokens_miscounted": _added("extend_num_tokens", 1),
    "prefixes_int64": _long_prefixes,
    "batch_size_too_large": _added("batch_size", 1),
    "positions_shuffled": _reversed_positions,
    "q_strided": lambda draft: draft.layers(q=_strided),
    "kv_strided": lambda draft: draft.layers(k=_strided, v=_strided),
    "q_wider": lambda draft: draft.layers(q=_wider),
    "q_lacks_a_head": _headless,
    "q_one_row_short": lambda draft: draft.layers(q=lambda q: q[:-1].clone()),
    "kv_one_row_short": lambda draft: draft.layers(k=lambda k: k[:-1].clone(), v=lambda v: v[:-1].clone()),
    "mask_short": _short_mask,
    "mask_missing": _no_mask,
    "mask_int32": _int_mask,
    "draft_width_wrong": _wide_draft,
}
