"""A step of two requests as it ought to be, for tests to spoil."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch

from fuzz.oracle.view import Fault, StepView
from stubs.plan import RowPlan, StepPlan
from stubs.tap import Tap
from stubs.world import World

SLOTS, HEADS, DIM, LAYERS = 10, 1, 2, 2
# Request 0 has slots 3, 1 and writes 5; request 1 has slot 7 and writes 2. Request 9's slot 4 lies beside them.
OWN = {0: [3, 1, 5, 6], 1: [7, 2]}
LOC = [5, 2]


@dataclass
class Metadata:
    kv_indptr: torch.Tensor
    kv_indices: torch.Tensor
    scratch: torch.Tensor
    max_extend_len: int = 1


class Decode(str):
    """The mode of a decode."""

    def is_decode(self) -> bool:
        return True


class Leaf:
    def __init__(self, metadata: Any) -> None:
        self.forward_metadata = metadata


def metadata(indptr: tuple[int, ...] = (0, 3, 5), indices: tuple[int, ...] = (3, 1, 5, 7, 2, 99)) -> Metadata:
    return Metadata(torch.tensor(indptr), torch.tensor(indices), torch.zeros(3))


def taps(**change: float) -> list[Tap]:
    """Two layers' K, V and output, [tokens, heads * dim]; ``change`` adds to one of them in layer 1."""
    made = []
    for layer in range(LAYERS):
        k, v, out = (torch.full((2, DIM), 10.0 * layer + n) for n in (1, 2, 3))
        fields = {"k": k, "v": v, "out": out}
        if layer == 1:
            fields |= {name: fields[name] + delta for name, delta in change.items()}
        made.append(Tap(layer, torch.zeros(2, DIM), **fields))
    return made


class Case:
    """A step as it ought to be: what is wrong with it is changed before ``view`` is asked for."""

    def __init__(self) -> None:
        pool = [torch.full((SLOTS, HEADS, DIM), 1000.0) for _ in range(2 * LAYERS)]
        self.kv_before = [buffer.clone() for buffer in pool]
        for tap in taps():
            pool[tap.layer_index][LOC] = tap.k.view(2, HEADS, DIM)
            pool[LAYERS + tap.layer_index][LOC] = tap.v.view(2, HEADS, DIM)
        self.pool = SimpleNamespace(k_buffer=pool[:LAYERS], v_buffer=pool[LAYERS:])
        self.leaf = Leaf(metadata())
        self.inputs = {"req_to_token": torch.arange(6), "seq_lens": torch.tensor([3, 2])}

    def view(self, **fields: Any) -> StepView:
        live = [SimpleNamespace(request_id=i, slots=slots, window_slots=[]) for i, slots in OWN.items()]
        rows = (RowPlan(live[0], 0, 1, 2), RowPlan(live[1], 1, 1, 1))  # type: ignore[arg-type]
        runner = SimpleNamespace(token_to_kv_pool=self.pool)
        plan = StepPlan("decode", False, runner, SimpleNamespace(forward_mode=Decode()), rows)
        view = StepView(
            world=World(),
            plan=plan,
            taps=taps(),
            kv_before=self.kv_before,
            inputs_before=self.inputs,
            inputs_after={name: value.clone() for name, value in self.inputs.items()},
            backend=self.leaf,
            leaf=self.leaf,
        )
        return replace(view, **fields)


def told(faults: list[Fault]) -> list[tuple[str, str]]:
    return [(str(fault.signature), fault.message) for fault in faults]
