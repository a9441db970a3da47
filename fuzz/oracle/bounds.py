"""Bounds oracle: what the checked interpreter saw kernels do outside a buffer, a view, or the rows of this step.

Checks each unmasked lane of every interpreted Triton kernel. Does not see torch's own operations; closed kernels are
judged by the contracts of their stand-ins, which raise and come to the contract oracle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuzz.finding import Signature
from fuzz.oracle.view import Fault, StepView
from stubs.batch import StepPlan
from stubs.interpreter_log import SlotPolicy
from stubs.slots import kv_buffers


def kernels_in_bounds(view: StepView) -> list[Fault]:
    """One fault per kind, kernel and argument; the evidence is the first violation in full."""
    faults: dict[Signature, Fault] = {}
    for violation in view.violations:
        signature = Signature("bounds", violation.kind, f"{violation.kernel}.{violation.argument}")
        if signature in faults:
            continue
        title = f"{violation.kernel} {_DONE[violation.access]} {_WHERE[violation.kind]} through {violation.argument}"
        faults[signature] = Fault(signature, title, str(violation), {"mode": view.plan.mode, "line": violation.text})
    return list(faults.values())


_DONE = {"load": "reads", "store": "writes", "atomic": "updates"}
_WHERE = {
    "storage": "outside the storage",
    "view": "outside the tensor",
    "hole": "between the rows of a strided tensor",
    "wrapped": "at an offset that wrapped in 32 bits",
    "wild": "at an address of no argument",
    "row_read": "KV rows that no request of this step owns",
    "row_write": "KV rows that this step may not write",
}


def slot_policies(plan: StepPlan) -> Sequence[SlotPolicy]:
    """For every K and V buffer: rows owned by a request of this step may be read, its new tokens' rows written."""
    buffers = kv_buffers(plan.runner.token_to_kv_pool)
    readable = np.zeros(len(buffers[0]), dtype=bool)
    writable = np.zeros(len(buffers[0]), dtype=bool)
    for row in plan.rows:
        readable[row.live.slots[: row.prefix + row.count]] = True
        writable[row.live.slots[row.prefix : row.prefix + row.count]] = True
    layers = len(buffers) // 2
    names = [f"{half} of layer {index}" for half in "KV" for index in range(layers)]
    return [SlotPolicy(name, buffer, readable, writable) for name, buffer in zip(names, buffers, strict=True)]
