"""An answer of None over a child that knows better: whose fault it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fuzz.oracle.contract import Judgement
from tests.fuzz.oracle.conftest import judged, summary


def read_through(target: Any, *, child_knows: bool, wrapper_says: object = ...) -> Judgement:
    """What is judged where a wrapper of a wrapper is read; ``wrapper_says``: what the inner one answers, if anything."""
    inner = target.HybridAttnBackend()
    if child_knows:
        inner.decode_backend.max_context_len = 64
    if wrapper_says is not ...:
        inner.max_context_len = wrapper_says
    return judged(target.row_width, SimpleNamespace(backend=target.HybridLinearAttnBackend(inner)))


def test_name_that_a_wrapper_lacks_is_the_same_fault_behind_another_that_says_none(target: Any) -> None:
    judgement = read_through(target, child_knows=True)
    assert summary(judgement) == ("bug", "contract/AttributeError/HybridAttnBackend.max_context_len")
    assert judgement.title == "AttributeError: HybridAttnBackend has no 'max_context_len', read by row_width"
    assert judgement.evidence["asked"] == "HybridLinearAttnBackend"
    assert judgement.evidence["has it"] == "Child"


def test_wrapper_that_says_none_itself_is_blamed(target: Any) -> None:
    judgement = read_through(target, child_knows=True, wrapper_says=None)
    assert summary(judgement) == ("bug", "contract/TypeError/HybridAttnBackend.max_context_len")


def test_none_that_no_child_knows_better_is_the_readers(target: Any) -> None:
    judgement = read_through(target, child_knows=False)
    assert summary(judgement) == ("bug", "contract/TypeError/row_width")
