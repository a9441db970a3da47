"""The numeric oracle over layers with chunks: what each query sees there, and the names of what is wrong."""

from __future__ import annotations

import pytest
import torch

from fuzz.oracle.rule import Rule, mask_of, of_chunks
from stubs.layer import Layer, layer_of
from stubs.plan import RowPlan
from stubs.world import World
from tests.fuzz.oracle.test_numeric import Case, mask, signatures

CHUNKED = "00010 00011 "  # two new tokens after three, in chunks of three: 3, 4 are of the second


def test_right_chunks_are_no_fault() -> None:
    case = Case(3, 2, attention_chunk_size=3)
    assert case.judge(case.output(mask(CHUNKED))) == []


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        ("11110 11111", "chunk_ignored"),
        ("01110 00111", "window_for_chunk"),  # of three keys, its own with them
        ("11110 01111", "window_for_chunk"),  # and of one more
        ("00110 00001", "chunk_of_wrong_size"),  # of two
        ("11110 00001", "chunk_of_wrong_size"),  # of four
        ("10010 00011", "wrong_output"),
    ],
)
def test_what_is_wrong_has_a_name(seen: str, kind: str) -> None:
    case = Case(3, 2, attention_chunk_size=3)
    assert signatures(case.judge(case.output(mask(seen)))) == [f"numeric/{kind}/Leaf.forward_extend"]


def test_in_a_tree_a_node_is_of_the_chunk_of_its_depth() -> None:
    # After two tokens in chunks of three: the root ends the first chunk, both its children begin the second.
    case = Case(2, 3, attention_chunk_size=3, tree=mask("100 110 101"))
    assert case.judge(case.output(mask("11100 00010 00001"))) == []
    faults = case.judge(case.output(mask("11100 11110 11101")))
    assert signatures(faults) == ["numeric/chunk_ignored/Leaf.forward_extend"]


def test_a_tree_and_chunks_that_are_ignored_are_a_fault_each() -> None:
    case = Case(2, 3, attention_chunk_size=3, tree=mask("100 110 101"))
    assert signatures(case.judge(case.output(mask("11100 11110 11111")))) == [
        "numeric/chunk_ignored/Leaf.forward_extend",
        "numeric/tree_mask_ignored/Leaf.forward_extend",
    ]


def test_a_layer_without_chunks_sees_all() -> None:
    row = RowPlan(None, 0, 2, 3)  # type: ignore[arg-type]
    layer = layer_of(World(attention_chunk_size=3, alternate_layers=1, num_layers=2), 1)
    assert torch.equal(mask_of(layer, row, Rule()), mask("11110 11111"))


def test_there_is_nothing_to_be_wrong_without_chunks() -> None:
    assert of_chunks(0) == ()
    assert torch.equal(mask_of(Layer(1.0, 0, 0, 0), RowPlan(None, 0, 1, 1), Rule()), mask("11"))  # type: ignore[arg-type]
