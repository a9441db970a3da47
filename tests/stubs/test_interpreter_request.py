"""What loads tell about the request a program works for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stubs.interpreter_log import Batch
from stubs.interpreter_request import RequestTrace

ONE, OTHER = (0, 0, 0), (1, 0, 0)


def ints(*values: int, dtype: Any = torch.int32) -> Any:
    return torch.tensor(values, dtype=dtype)


def place(*loads: tuple[str, str, int], count: int = 3) -> int | None:
    """Where the trace puts a program after loads of (clue, argument, element)."""
    trace = RequestTrace(Batch(count))
    for clue, argument, element in loads:
        trace.note(clue, argument, element, ONE)
    return trace.place(ONE)


@pytest.mark.parametrize("tensor", [ints(0, 2, 2, 7), ints(0, 1, 2, 3, dtype=torch.int64)])
def test_integers_that_rise_from_0_one_more_than_requests_are_an_indptr(tensor: Any) -> None:
    assert RequestTrace(Batch(3)).clue(tensor) == "indptr"


@pytest.mark.parametrize(
    "tensor",
    [
        ints(0, 2, 7),
        ints(0, 2, 7, 8, 9),
        ints(1, 2, 3, 4),
        ints(0, 3, 2, 4),
        torch.tensor([0.0, 1.0, 2.0, 3.0]),
        torch.tensor([False, True, True, True]),
        ints(0, 1, 2, 3).reshape(2, 2),
    ],
)
def test_other_tensors_tell_nothing(tensor: Any) -> None:
    assert RequestTrace(Batch(3)).clue(tensor) == ""


def test_a_tensor_of_the_batch_is_known_by_its_place_in_memory() -> None:
    lengths = ints(5, 2, 1)
    trace = RequestTrace(Batch(3, [lengths]))
    assert (trace.clue(lengths[:2]), trace.clue(lengths.clone())) == ("array", "")


def test_an_element_of_an_array_and_a_pair_of_an_indptr_tell_the_request() -> None:
    assert place(("array", "lengths", 2)) == 2
    assert place(("indptr", "starts", 1), ("indptr", "starts", 2)) == 1
    assert place(("indptr", "starts", 2), ("indptr", "starts", 1)) == 1


def test_half_a_pair_or_a_pair_of_two_arguments_tells_nothing() -> None:
    assert place() is None
    assert place(("indptr", "starts", 1)) is None
    assert place(("indptr", "starts", 1), ("indptr", "ends", 2)) is None
    assert place(("indptr", "starts", 0), ("indptr", "starts", 2)) is None


def test_the_last_clue_counts() -> None:
    search = [("indptr", "starts", element) for element in (0, 1, 1, 2, 2, 3)]
    assert place(*search) == 2
    assert place(*search, ("array", "lengths", 0)) == 0


def test_another_program_begins_anew() -> None:
    trace = RequestTrace(Batch(3))
    trace.note("array", "lengths", 2, ONE)
    assert trace.place(OTHER) is None


def test_a_lone_request_needs_no_clue_and_none_has_none() -> None:
    assert place(count=1) == 0
    assert place(count=0) is None
