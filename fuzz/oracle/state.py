"""State oracle: what a step may write, what its metadata may point at, and that its history leaves no mark.

Checks that a batch counts its new tokens right, KV buffers outside and at ``out_cache_loc``, the tensors that a forward
may only read, the shape of index metadata and whose slots it names, and each step on a fresh wrapper against the same
step after any history.
Does not check private scratch buffers (float tensors of the metadata).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

import torch

from fuzz.finding import Signature
from fuzz.oracle.view import Fault, StepView
from stubs.kv_memory import KVBuffer, kv_memory
from stubs.layer import layer_of
from stubs.tap import Tap

WRAPPERS_MAX = 3  # two-batch overlap's over linear layers' over two halves


def inputs_unchanged(view: StepView) -> list[Fault]:
    """A forward reads req_to_token, lengths and locations; it changes none of them."""
    return [
        Fault(
            Signature("state", "input_changed", f"{type(view.leaf).__name__}.{name}"),
            f"{view.plan.mode} on {type(view.leaf).__name__} changed {name}",
            f"{name} was {before.flatten()[:12].tolist()} and is {view.inputs_after[name].flatten()[:12].tolist()}",
        )
        for name, before in view.inputs_before.items()
        if not torch.equal(before, view.inputs_after[name])
    ]


def batch_sound(view: StepView) -> list[Fault]:
    """What a forward batch says of its own size in several places is the same everywhere, with its padding or without."""
    batch, plan = view.plan.forward_batch, view.plan
    lens = getattr(batch, "extend_seq_lens", None)
    said = getattr(batch, "extend_num_tokens", None)
    if batch.forward_mode.is_idle() or said is None or not isinstance(lens, torch.Tensor):
        return []
    if said == int(lens.sum()) or (plan.is_padded and said == int(lens[: len(plan.rows)].sum())):
        return []
    return [
        Fault(
            Signature("state", "batch_unsound", f"ForwardBatch.extend_num_tokens.{view.family}"),
            f"{view.plan.mode}: the batch counts its new tokens wrong",
            f"extend_num_tokens is {said}, and extend_seq_lens are {lens.tolist()[:12]}",
        )
    ]


def tokens_as_given(view: StepView) -> list[Fault]:
    """The tokens that a forward batch takes to the model are those that it was made for, in their order; then padding."""
    given, taken = view.plan.input_ids, getattr(view.plan.forward_batch, "input_ids", None)
    if given is not None and isinstance(taken, torch.Tensor) and view.plan.is_padded:
        taken = taken[: len(given)]
    if given is None or (isinstance(taken, torch.Tensor) and torch.equal(given, taken.to(given.dtype))):
        return []
    found = taken.tolist()[:12] if isinstance(taken, torch.Tensor) else taken
    return [
        Fault(
            Signature("state", "wrong_tokens", f"ForwardBatch.input_ids.{view.family}"),
            f"{view.plan.mode}: the batch takes other tokens to the model than it was made for",
            f"input_ids are {found}; given were {given.tolist()[:12]}",
        )
    ]


def kv_written_where_told(view: StepView) -> list[Fault]:
    """Rows outside ``out_cache_loc`` stay bit for bit; rows at it hold the step's K and V.

    Where a kernel wrote astray, or read between rows where to write, the bounds oracle has told of it: one fault, once.
    """
    if any(violation.access != "load" or violation.kind == "hole" for violation in view.strays.violations):
        return []
    plan = view.plan
    memory = kv_memory(plan.runner.token_to_kv_pool)
    faults = []
    for before, buffer in zip(view.kv_before, memory, strict=True):
        loc = _locations(view, buffer)
        outside = torch.ones(len(before), dtype=torch.bool, device=loc.device)
        outside[loc] = False
        if plan.may_pad:
            outside[0] = False  # where rows of padding are written
        changed = _rows_differ(before, buffer.tensor) & outside
        if bool(changed.any()):
            rows = changed.nonzero().flatten().tolist()
            where = f"rows {rows[:8]} are not among {loc[:8].tolist()}"
            faults.append(_kv_fault(view, "stray_kv_write", buffer.name, where))
    for tap in view.taps:
        for buffer in (buffer for buffer in memory if buffer.layer == tap.layer_index):
            loc, wanted = _locations(view, buffer), _stored(view, buffer, tap)
            wrong = _rows_differ(buffer.tensor[loc], wanted)
            if bool(wrong.any()):
                kind = "kv_stored_unscaled" if _is_unscaled(view, buffer, tap, loc) else "kv_not_written"
                faults.append(_kv_fault(view, kind, buffer.name, f"rows {loc[wrong].tolist()[:8]}"))
    return faults


def kv_left_to_the_model(view: StepView) -> list[Fault]:
    """A layer that is told not to save K and V, since its model has done so, does not write them a second time."""
    if not any(tap.stored for tap in view.taps):
        return []
    layers = [tap.layer_index for tap in view.taps if tap.stored]
    return [
        Fault(
            Signature("state", "save_kv_cache_ignored", view.place_of_kv),
            f"{view.plan.mode} on {type(view.leaf).__name__} writes K and V though save_kv_cache is False",
            f"layers {layers} wrote to KV buffers; models that write K and V themselves call them so",
        )
    ]


def restore_kv(view: StepView) -> None:
    """Make the pool hold what it ought to after the step, so that later steps are not judged by this one's faults.

    What was stored without its scale stays so: a backend that reads it without as well is right.
    """
    for buffer, before in zip(kv_memory(view.plan.runner.token_to_kv_pool), view.kv_before, strict=True):
        loc = _locations(view, buffer)
        taps = [tap for tap in view.taps if tap.layer_index == buffer.layer]
        kept = [_stored(view, buffer, tap, scaled=not _is_unscaled(view, buffer, tap, loc)) for tap in taps]
        buffer.tensor.copy_(before)
        for rows in kept:
            buffer.tensor[loc] = rows


def _stored(view: StepView, buffer: KVBuffer, tap: Tap, *, scaled: bool = True) -> torch.Tensor:
    """[tokens, num_kv_heads, head_dim]: what the buffer is to hold of the step's tokens, or of its encoders'."""
    new, scale = (tap.k, view.world.kv_scales[0]) if buffer.half == "K" else (tap.v, view.world.kv_scales[1])
    return buffer.encode(new.reshape(len(new), *buffer.tensor.shape[1:]), scale if scaled else 1.0)


def _is_unscaled(view: StepView, buffer: KVBuffer, tap: Tap, loc: torch.Tensor) -> bool:
    """Whether the rows at ``loc`` hold the step's K or V as they are, in a layer that has scales for them."""
    if not view.world.kv_scale or not len(loc):
        return False
    held = buffer.tensor[loc]
    scaled, plain = (_stored(view, buffer, tap, scaled=scaled) for scaled in (True, False))
    return bool(_rows_differ(held, scaled).any()) and not bool(_rows_differ(held, plain).any())


def _locations(view: StepView, buffer: KVBuffer) -> torch.Tensor:
    """int64 [tokens] on device: the buffer's rows for what the step gives its layer, in the order of its requests."""
    layer = layer_of(view.world, buffer.layer, on_draft=view.plan.on_draft)
    slots = [slot for row in view.plan.rows for slot in row.written(layer)]
    return buffer.rows_at(torch.tensor(slots, dtype=torch.int64, device=view.world.device))


def _rows_differ(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """bool [rows]. NaN equals NaN: a row that held one before is not changed by holding it still."""
    return ((one != other) & ~(one.isnan() & other.isnan())).flatten(1).any(dim=1)


_KV_FAULTS = {
    "stray_kv_write": "wrote KV rows it was not given",
    "kv_not_written": "left its own KV rows unwritten or wrong",
    "kv_stored_unscaled": "stored K or V without the layer's scale",
}


def _kv_fault(view: StepView, kind: str, name: str, detail: str) -> Fault:
    return Fault(
        Signature("state", kind, view.place_of_kv),
        f"{view.plan.mode} on {type(view.leaf).__name__} {_KV_FAULTS[kind]}",
        f"{name}: {detail}",
    )


def metadata_sound(view: StepView) -> list[Fault]:
    """Every ``*indptr`` starts at 0 and never falls; the KV indices it bounds are the request's own slots."""
    graph = view.plan.graph
    metadata = getattr(view.leaf, "forward_metadata", None) if graph is None else graph.metadata
    tensors = dict(_tensors(metadata))
    faults = []
    for name, indptr in tensors.items():
        if not name.endswith("indptr") or indptr.dim() != 1 or not len(indptr):
            continue
        used = indptr[: len(view.plan.rows) + 1].tolist()
        if used[0] != 0 or any(a > b for a, b in pairwise(used)):
            faults.append(_metadata_fault(view, "indptr_falls", name, f"{name} is {used[:12]}"))
            continue
        indices = tensors.get(name.replace("indptr", "indices"))
        if "kv" in name and indices is not None:
            faults.extend(_foreign_slots(view, name, used, indices))
    return faults


def _foreign_slots(view: StepView, name: str, indptr: list[int], indices: torch.Tensor) -> Iterator[Fault]:
    short = name.replace("indptr", "indices")
    if indptr[-1] > len(indices):
        yield _metadata_fault(view, "indices_short", short, f"{name} ends at {indptr[-1]}, {short} has {len(indices)}")
        return
    for row, start, end in zip(view.plan.rows, indptr, indptr[1:]):
        own = {*row.live.slots[: row.prefix + row.count], *row.copies}
        own |= set(row.live.window_slots[: row.prefix + row.count])
        foreign = [slot for slot in indices[start:end].tolist() if slot not in own]
        if foreign:
            yield _metadata_fault(
                view, "foreign_slot", short, f"request {row.live.request_id} reads slots {foreign[:8]}, not its own"
            )
            return


def _metadata_fault(view: StepView, kind: str, name: str, detail: str) -> Fault:
    leaf = type(view.leaf).__name__
    return Fault(
        Signature("state", kind, f"{leaf}.{name}.{view.family}"),
        f"{view.plan.mode} metadata of {leaf} is unsound: {name}",
        detail,
    )


def cold_equals_warm(view: StepView) -> list[Fault]:
    """The step on a fresh wrapper gives the same output, bit for bit, and the same index metadata.

    A step that two fresh wrappers answer with different bits cannot be repeated, and says nothing of its history.
    """
    if view.rerun is None or view.replayed:
        return []
    warm = dict(_tensors(getattr(view.leaf, "forward_metadata", None)))
    taps, backend = view.rerun()
    for cold_tap, warm_tap in zip(taps, view.taps, strict=True):
        if not _same(cold_tap.out, warm_tap.out):
            if not all(_same(one.out, other.out) for one, other in zip(taps, view.rerun()[0], strict=True)):
                break
            detail = float((cold_tap.out.double() - warm_tap.out.double()).abs().max())
            return [_history_fault(view, "output", f"layer {warm_tap.layer_index} differs by {detail:.3g}")]
    leaf = serving_leaf(backend, view.plan.forward_batch.forward_mode)
    cold = dict(_tensors(getattr(leaf, "forward_metadata", None)))
    for name in sorted(warm.keys() | cold.keys()):
        one, other = warm.get(name), cold.get(name)
        if one is None or other is None:
            return [_history_fault(view, name, "present on one side only")]
        if one.is_floating_point() or one.dtype in (torch.uint8, torch.int8):
            continue  # bytes are a workspace: what is in it nobody wrote, or the launch before
        one, other = _read(view, name, _used(name, one, warm)), _read(view, name, _used(name, other, cold))
        if not _same(one, other):
            return [
                _history_fault(view, name, f"warm {one.flatten()[:12].tolist()}, cold {other.flatten()[:12].tolist()}")
            ]
    return []


def _history_fault(view: StepView, what: str, detail: str) -> Fault:
    leaf = type(view.leaf).__name__
    return Fault(
        Signature("state", "history_dependent", f"{leaf}.{what}.{view.family}"),
        f"{view.plan.mode} on {leaf} depends on what ran before: {what}",
        detail,
    )


def serving_leaf(backend: Any, forward_mode: Any) -> Any:
    """The leaf that wrappers send this mode to, or the backend itself where it is no wrapper."""
    for _ in range(WRAPPERS_MAX):
        select = getattr(backend, "_select_backend", None)
        inner = getattr(backend, "full_attn_backend", None) if select is None else select(forward_mode)
        # Two-batch overlap's, which hands nothing on up to 0.5.14: its halves are as the backend of whole batches.
        inner = getattr(backend, "primary", None) if inner is None else inner
        if inner is None:
            break
        backend = inner
    return backend


def _tensors(metadata: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensor fields of a metadata object, by name."""
    if metadata is None:
        return
    names = [field.name for field in fields(metadata)] if is_dataclass(metadata) else list(vars(metadata))
    for name in names:
        value = getattr(metadata, name, None)
        if isinstance(value, torch.Tensor):
            yield name, value


def _used(name: str, tensor: torch.Tensor, others: dict[str, torch.Tensor]) -> torch.Tensor:
    """An index buffer may be longer than its indptr says; what lies behind is nobody's business."""
    bound = others.get(name.replace("indices", "indptr")) if "indices" in name else None
    return tensor if bound is None or not len(bound) else tensor[: int(bound.max())]


def _read(view: StepView, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Of a table of pages, a row a request, what lies behind its last key is as if it were 0, and so are rows of padding."""
    rows, padding = view.plan.rows, len(tensor) - len(view.plan.rows)
    if tensor.dim() != 2 or "indices" not in name or padding not in (0, view.plan.padded_size - len(rows)):
        return tensor
    ends = [-(-(row.prefix + row.count) // view.world.page_size) for row in rows] + [0] * padding
    return torch.where(torch.arange(tensor.shape[1])[None] < torch.tensor(ends)[:, None], tensor.cpu(), 0)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool(torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)))
