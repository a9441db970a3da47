"""The bounds oracle: which KV rows a step may read and write, and what becomes of the interpreter's violations."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuzz.oracle.bounds import kernels_in_bounds, slot_policies
from fuzz.oracle.view import Fault, Strays
from stubs.interpreter_log import Violation
from stubs.kernels.contract import ContractBreach, note, noted_in
from stubs.plan import RowPlan
from stubs.world import World


def plan(*rows: tuple[list[int], int, int]) -> Any:
    """A step on a pool of two layers and 8 slots; each row is (slots, prefix, count)."""
    buffers = [torch.zeros(8, 1, 2) for _ in range(4)]
    pool = SimpleNamespace(k_buffer=buffers[:2], v_buffer=buffers[2:])
    parts = tuple(
        RowPlan(SimpleNamespace(slots=slots, request_id=0), 0, count, prefix) for slots, prefix, count in rows
    )  # type: ignore[arg-type]
    return SimpleNamespace(
        mode="decode", runner=SimpleNamespace(token_to_kv_pool=pool), rows=parts, graph=None, may_pad=False
    )


def rows(allowed: Any) -> list[int]:
    return [int(row) for row in allowed.nonzero()[0]]


def test_every_buffer_has_a_policy_of_its_own() -> None:
    step = plan(([3], 0, 1))
    policies = slot_policies(step)
    pool = step.runner.token_to_kv_pool
    assert [policy.name for policy in policies] == ["K of layer 0", "K of layer 1", "V of layer 0", "V of layer 1"]
    assert [id(policy.buffer) for policy in policies] == [id(b) for b in (*pool.k_buffer, *pool.v_buffer)]


def test_committed_and_new_rows_may_be_read_and_the_new_ones_written() -> None:
    # The first request holds slot 6 too, for tokens that are not of this step.
    for policy in slot_policies(plan(([3, 1, 5, 6], 2, 1), ([7, 2], 0, 2))):
        assert rows(policy.readable) == [1, 2, 3, 5, 7]
        assert rows(policy.writable) == [2, 5, 7]


def test_nothing_may_be_written_where_the_model_writes_kv_itself() -> None:
    step = plan(([3, 1, 5, 6], 2, 1))
    step.runner.world = World(save_kv_cache=0)
    for policy in slot_policies(step):
        assert (rows(policy.readable), rows(policy.writable)) == ([1, 3, 5], [])


def test_only_layers_with_a_window_end_at_it() -> None:
    step = plan(([3, 1, 5, 6], 2, 1))
    step.runner.world = World(sliding_window=1, alternate_layers=1)
    readable = {policy.name: rows(policy.readable) for policy in slot_policies(step)}
    assert (readable["K of layer 0"], readable["K of layer 1"]) == ([1, 5], [1, 3, 5])


def test_step_of_no_requests_may_touch_nothing() -> None:
    for policy in slot_policies(plan()):
        assert (rows(policy.readable), rows(policy.writable)) == ([], [])


def violation(kind: str = "row_read", access: str = "load", argument: str = "K_Buffer", line: int = 7) -> Violation:
    return Violation(
        kind=kind, access=access, kernel="_fwd_kernel", argument=argument, program=(0, 0, 0), lanes=1, offset=8,
        offset_min=8, offset_max=8, extent=16, shape=(8, 2), stride=(2, 1), dtype="float32", lands_in="", row=4,
        request=None, file="kernel.py", line=line, text="tl.load(K_Buffer + offs)",
    )  # fmt: skip


def judged(*violations: Violation) -> list[Fault]:
    view = SimpleNamespace(plan=SimpleNamespace(mode="decode"), strays=Strays(violations))
    return kernels_in_bounds(view)  # type: ignore[arg-type]


def test_no_violation_is_no_fault() -> None:
    assert judged() == []


def test_a_breach_that_was_noted_is_a_fault_of_its_argument_once() -> None:
    breaches: list[ContractBreach] = []
    with noted_in(breaches):
        note("Paged", "window_left", "is 4 but was not planned", request=1)
        note("Paged", "window_left", "is 2 but was not planned", request=0)
        note("Paged", "logits_soft_cap", "is 30", rule="planned")
    view = SimpleNamespace(plan=SimpleNamespace(mode="decode"), strays=Strays((), breaches))
    faults = kernels_in_bounds(view)  # type: ignore[arg-type]
    assert [str(fault.signature) for fault in faults] == [
        "bounds/contract_breach/Paged.window_left",
        "bounds/contract_breach/Paged.logits_soft_cap:planned",
    ]
    assert faults[0].title == "Paged: window_left of request 1: is 4 but was not planned"
    assert "test_a_breach_that_was_noted" in faults[0].evidence["traceback"]


def test_a_breach_that_nobody_notes_is_raised() -> None:
    with noted_in([]), noted_in(None), pytest.raises(ContractBreach):
        note("Paged", "window_left", "is 4 but was not planned")
    with pytest.raises(ContractBreach):
        note("Paged", "window_left", "is 4 but was not planned")


@pytest.mark.parametrize(
    ("kind", "access", "title"),
    [
        ("row_read", "load", "_fwd_kernel reads KV rows that no request of this step owns through K_Buffer"),
        ("row_write", "store", "_fwd_kernel writes KV rows that this step may not write through K_Buffer"),
        ("storage", "atomic", "_fwd_kernel updates outside the storage through K_Buffer"),
        ("view", "load", "_fwd_kernel reads outside the tensor through K_Buffer"),
        ("hole", "load", "_fwd_kernel reads between the rows of a strided tensor through K_Buffer"),
        ("wrapped", "load", "_fwd_kernel reads at an offset that wrapped in 32 bits through K_Buffer"),
        ("wild", "store", "_fwd_kernel writes at an address of no argument through K_Buffer"),
    ],
)
def test_violation_is_a_fault_in_words(kind: str, access: str, title: str) -> None:
    (fault,) = judged(violation(kind, access))
    assert (str(fault.signature), fault.title) == (f"bounds/{kind}/_fwd_kernel.K_Buffer", title)
    assert fault.evidence == {"mode": "decode", "line": "tl.load(K_Buffer + offs)"}


def test_a_kernel_that_runs_in_anothers_place_says_where_the_other_one_would() -> None:
    (fault,) = judged(replace(violation("hole"), kernel="set_mla_kv_buffer_kernel"))
    assert fault.evidence["elsewhere"].startswith("from SM90 on SGLang")


def test_same_kind_kernel_and_argument_is_one_fault_shown_by_the_first() -> None:
    faults = judged(violation(line=7), violation(line=8), violation(argument="V_Buffer"))
    assert [fault.signature.place for fault in faults] == ["_fwd_kernel.K_Buffer", "_fwd_kernel.V_Buffer"]
    assert "kernel.py:7" in faults[0].message
