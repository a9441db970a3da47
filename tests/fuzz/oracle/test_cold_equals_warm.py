"""The state oracle on a step that is run again on a fresh wrapper: what may differ, and what depends on history."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from fuzz.oracle.state import cold_equals_warm
from tests.fuzz.oracle.sound_step import Case, Leaf, metadata, taps, told


def rerun(leaf: Leaf, **change: float) -> Any:
    return lambda: (taps(**change), leaf)


def test_step_without_a_rerun_is_not_judged() -> None:
    assert cold_equals_warm(Case().view()) == []


def test_same_output_and_metadata_are_no_fault() -> None:
    assert cold_equals_warm(Case().view(rerun=rerun(Leaf(metadata())))) == []


def test_output_that_depends_on_history() -> None:
    view = Case().view(rerun=rerun(Leaf(metadata()), out=0.5))
    assert told(cold_equals_warm(view)) == [
        ("state/history_dependent/Leaf.output.decode", "layer 1 differs by 0.5"),
    ]


def test_bits_that_two_fresh_wrappers_do_not_agree_on_say_nothing_of_history() -> None:
    answers = iter((0.5, 0.25))
    view = Case().view(rerun=lambda: (taps(out=next(answers)), Leaf(metadata((0, 2, 5)))))
    assert told(cold_equals_warm(view)) == [
        ("state/history_dependent/Leaf.kv_indptr.decode", "warm [0, 3, 5], cold [0, 2, 5]")
    ]


def test_metadata_that_depends_on_history() -> None:
    view = Case().view(rerun=rerun(Leaf(metadata((0, 2, 5)))))
    assert told(cold_equals_warm(view)) == [
        ("state/history_dependent/Leaf.kv_indptr.decode", "warm [0, 3, 5], cold [0, 2, 5]")
    ]


def table(*last: int) -> Leaf:
    """A table of pages of requests of 3 and 2 keys in pages of 1; ``last`` are the second's second and third column."""
    pages = torch.tensor([[4, 5, 6], [1, *last]], dtype=torch.int32)
    return Leaf(SimpleNamespace(block_kv_indices=pages, workspace=torch.tensor(last[:1], dtype=torch.uint8)))


def test_what_stands_in_a_table_behind_the_last_key_is_not_read() -> None:
    assert cold_equals_warm(Case().view(leaf=table(2, 9), rerun=rerun(table(2, 0)))) == []


def test_rows_of_padding_in_a_table_are_not_read() -> None:
    padded = [torch.tensor([[4, 5, 6], [1, 2, 0], [0, last, 0]], dtype=torch.int32) for last in (7, -1)]
    warm, cold = (Leaf(SimpleNamespace(block_kv_indices=pages)) for pages in padded)
    view = Case().view(leaf=warm, rerun=rerun(cold))
    assert cold_equals_warm(replace(view, plan=replace(view.plan, padding=1))) == []
    assert len(cold_equals_warm(view)) == 1  # a row that is no padding


def test_a_page_that_is_read_is_compared_and_bytes_of_a_workspace_are_not() -> None:
    view = Case().view(leaf=table(2, 9), rerun=rerun(table(3, 9)))
    assert told(cold_equals_warm(view)) == [
        (
            "state/history_dependent/Leaf.block_kv_indices.decode",
            "warm [4, 5, 6, 1, 2, 0], cold [4, 5, 6, 1, 3, 0]",
        )
    ]


def test_metadata_on_one_side_only() -> None:
    view = Case().view(rerun=rerun(Leaf(None)))
    assert told(cold_equals_warm(view)) == [
        ("state/history_dependent/Leaf.kv_indices.decode", "present on one side only")
    ]


def test_indices_behind_their_indptr_and_float_scratch_may_differ() -> None:
    cold = metadata(indices=(3, 1, 5, 7, 2, 0, 0))
    cold.scratch += 1
    assert cold_equals_warm(Case().view(rerun=rerun(Leaf(cold)))) == []


def test_warm_metadata_is_read_before_the_rerun() -> None:
    """A fresh wrapper may share its leaf's buffers: what it writes there must not hide the difference."""
    case = Case()
    shared = case.leaf.forward_metadata

    def overwriting() -> Any:
        case.leaf.forward_metadata = cold = metadata((0, 2, 5))
        return taps(), Leaf(cold)

    (fault,) = cold_equals_warm(case.view(rerun=overwriting))
    assert fault.signature.place == "Leaf.kv_indptr.decode"
    assert shared.kv_indptr.tolist() == [0, 3, 5]
