"""Bounds oracle: what kernels did outside a buffer, a view, or the rows of their request.

Checks each unmasked lane of every interpreted Triton kernel, and on any device that the guards round pool buffers hold
what they held. Does not see torch's own operations otherwise; closed kernels are judged by the contracts of their
stand-ins, which note a breach, or raise it and come to the contract oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuzz.finding import ANSWERED, BREACH, RULE, TITLE_MAX, Signature
from fuzz.oracle.view import Fault, StepView, Strays
from stubs.guards import Guard
from stubs.interpreter_log import Batch, RequestRows, SlotPolicy, Violation
from stubs.kernels.contract import ContractBreach
from stubs.kv_memory import KVBuffer, kv_memory
from stubs.layer import Layer, layer_of
from stubs.plan import RowPlan, StepPlan
from stubs.sglang_latent_store import IN_ANOTHERS_PLACE


def kernels_in_bounds(view: StepView) -> list[Fault]:
    """What kernels did in this step, and in SGLang's preparing it."""
    return out_of_bounds(view.strays, view.plan.mode)


def out_of_bounds(strays: Strays, mode: str) -> list[Fault]:
    """One fault per kind, kernel and argument; the evidence is the first violation in full."""
    faults: dict[Signature, Fault] = {}
    for breach in strays.breaches:
        fault = Fault(
            Signature("bounds", BREACH, place_of(breach)),
            str(breach)[:TITLE_MAX],
            f"{type(breach).__name__}: {breach}",
            {"mode": mode, ANSWERED: "as it was told to, which the kernel would not do", "traceback": breach.stack},
        )
        faults.setdefault(fault.signature, fault)
    for violation in strays.violations:
        signature = Signature("bounds", violation.kind, f"{violation.kernel}.{violation.argument}")
        if signature in faults:
            continue
        title = f"{violation.kernel} {_DONE[violation.access]} {_where(violation)} through {violation.argument}"
        evidence = {"mode": mode, "line": violation.text}
        if violation.request is not None:
            evidence["request"] = str(violation.request)
        if violation.kernel in IN_ANOTHERS_PLACE:
            evidence["elsewhere"] = IN_ANOTHERS_PLACE[violation.kernel]
        faults[signature] = Fault(signature, title, str(violation), evidence)
    return list(faults.values())


def place_of(breach: ContractBreach) -> str:
    return f"{breach.function}.{breach.argument}{RULE if breach.rule else ''}{breach.rule}"


def guards_intact(view: StepView) -> list[Fault]:
    """Nothing was written before or behind a pool's buffers."""
    faults = []
    guards: Sequence[Guard] = getattr(view.plan.runner, "guards", ())
    for guard in guards:
        written = guard.overwritten()
        if written:
            faults.append(
                Fault(
                    Signature("bounds", "guard_overwritten", f"{type(view.leaf).__name__}.{guard.name}"),
                    f"{view.plan.mode} on {type(view.leaf).__name__} writes outside of {guard.name}",
                    f"elements {written[:8]} ({len(written)} in all) from the first of its storage were written",
                )
            )
    return faults


_DONE = {"load": "reads", "store": "writes", "atomic": "updates"}
_WHERE = {
    "storage": "outside the storage",
    "view": "outside the tensor",
    "hole": "between the rows of a strided tensor",
    "wrapped": "at an offset that wrapped in 32 bits",
    "wild": "at an address of no argument",
    "uninitialised": "what nobody wrote",
    "row_read": "KV rows that no request of this step owns",
    "row_write": "KV rows that this step may not write",
    "entry_read": "entries of req_to_token that are no token of this step",
    "entry_write": "entries of req_to_token",
}
_WHERE_OF_REQUEST = {
    "row_read": "KV rows that its request may not read",
    "row_write": "KV rows that its request may not write",
    "entry_read": "entries of req_to_token that are no token of its request",
}


def _where(violation: Violation) -> str:
    told = None if violation.request is None else _WHERE_OF_REQUEST.get(violation.kind)
    return told or _WHERE[violation.kind]


def slot_policies(plan: StepPlan) -> Sequence[SlotPolicy]:
    """For every K and V buffer: a request's rows may be read, as far back as its window goes, its new ones written."""
    return [_kv_policy(plan, buffer) for buffer in kv_memory(plan.runner.token_to_kv_pool)]


def _kv_policy(plan: StepPlan, buffer: KVBuffer) -> SlotPolicy:
    world = getattr(plan.runner, "world", None)
    # Of a model with chunks SGLang says their size for a window that no layer has: who may see what, outputs tell.
    is_chunked = getattr(plan.runner, "attention_chunk_size", None) is not None
    everywhere = 0 if is_chunked else getattr(plan.runner, "sliding_window_size", None) or 0
    layer = Layer(1.0, everywhere, 0, 0) if world is None else layer_of(world, buffer.layer)
    window = layer.window
    own = []
    for row in plan.rows:
        first = max(0, row.prefix - window) if window else 0  # the first new token sees itself and ``window`` before it
        written = row.written(layer) if world is None or world.save_kv_cache else ()
        readable = [*row.readable(layer)[first:], *row.copies]
        own.append(_rows(len(buffer.tensor), row, buffer.rows(readable), buffer.rows(written)))
    padding = _padding(plan, len(buffer.tensor), [0, *buffer.rows(_slots_of_row_0(plan))], [0])
    return _policy(buffer.name, buffer.tensor, own, padding)


def _slots_of_row_0(plan: StepPlan) -> list[int]:
    """What padded rows, which are request row 0 and slot 0, are told to read.

    Nothing but slot 0, except up to 0.5.9, where that row is a request's: they read its KV, and nobody their output.
    """
    return [] if not plan.may_pad else plan.runner.req_to_token_pool.req_to_token[0].unique().tolist()


def table_policy(plan: StepPlan) -> SlotPolicy:
    """For req_to_token: the entries of a request's tokens may be read and none written.

    A graph's kernels have the extent that they were captured with: they may read all of a request's row.
    """
    table = plan.runner.req_to_token_pool.req_to_token
    own = []
    for row in plan.rows:
        first = row.live.row * table.shape[1]
        length = table.shape[1] if plan.graph is not None else max(row.prefix + row.count, row.reach)
        own.append(_rows(table.numel(), row, range(first, first + length), ()))
    padding = _padding(plan, table.numel(), range(table.shape[1]), ())  # padded rows are request row 0
    return _policy("req_to_token", table.view(-1), own, padding, unit="entry")


def batch_of(plan: StepPlan) -> Batch:
    """How a kernel's programs tell for which request of the step they work. A graph's work on its own buffers."""
    names = ("req_pool_indices", "seq_lens", "extend_seq_lens", "extend_prefix_lens", "extend_start_loc")
    sources = [plan.forward_batch] + ([plan.graph.buffers] if plan.graph is not None else [])
    if plan.draft is not None and plan.runner.world.spec_topk > 1:
        sources = []  # they hold an element for a request, and the plan has a row for each of its branches
    arrays = (getattr(source, name, None) for source in sources for name in names)
    return Batch(plan.padded_size, [array for array in arrays if array is not None])


def _rows(size: int, row: RowPlan, readable: Sequence[int], writable: Sequence[int]) -> RequestRows:
    masks = np.zeros((2, size), dtype=bool)
    masks[0, list(readable)] = True
    masks[1, list(writable)] = True
    return RequestRows(row.live.request_id, masks[0], masks[1])


def _padding(plan: StepPlan, size: int, readable: Sequence[int], writable: Sequence[int]) -> list[RequestRows]:
    """What rows of padding may touch, where there are some."""
    if not plan.may_pad:
        return []
    masks = np.zeros((2, size), dtype=bool)
    masks[0, list(readable)] = True
    masks[1, list(writable)] = True
    return [RequestRows(-1, masks[0], masks[1])]


def _policy(
    name: str, buffer: Any, own: Sequence[RequestRows], padding: Sequence[RequestRows], unit: str = "row"
) -> SlotPolicy:
    """Any program may touch what some request or padding may, and one whose request is known what that one may."""
    nothing = np.zeros(len(buffer), dtype=bool)
    readable = np.logical_or.reduce([nothing, *(rows.readable for rows in (*own, *padding))])
    writable = np.logical_or.reduce([nothing, *(rows.writable for rows in (*own, *padding))])
    return SlotPolicy(name, buffer, readable, writable, own, unit)
