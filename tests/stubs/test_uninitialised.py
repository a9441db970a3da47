"""The pattern of unwritten memory: who hands it out, what it is told by, and what takes it away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from stubs import uninitialised

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16, torch.int32, torch.int64)


@pytest.fixture
def _installed() -> Iterator[None]:
    undo = uninitialised.install()
    yield
    undo()


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_nobody_wrote_is_unwritten_and_what_is_written_is_not(dtype: torch.dtype) -> None:
    for made in (
        torch.empty(3, dtype=dtype),
        torch.empty_like(torch.zeros(3, dtype=dtype)),
        torch.empty_strided((3,), (1,), dtype=dtype),
        torch.zeros(1, dtype=dtype).new_empty(3),
    ):
        assert uninitialised.unwritten(made, 3) is not None
        made[:] = 1
        assert uninitialised.unwritten(made, 3) is None


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_what_is_computed_of_it_is_not_unwritten(dtype: torch.dtype) -> None:
    assert uninitialised.unwritten(torch.empty(3, dtype=dtype) * 1, 3) is None


@pytest.mark.usefixtures("_installed")
def test_a_copy_of_it_is_unwritten_too() -> None:
    assert uninitialised.unwritten(torch.empty(3).clone(), 3) is not None


@pytest.mark.usefixtures("_installed")
def test_bytes_and_bools_cannot_be_told() -> None:
    assert uninitialised.unwritten(torch.empty(3, dtype=torch.bool), 3) is None
    assert uninitialised.unwritten(torch.empty(3, dtype=torch.uint8), 3) is None


def test_the_words_are_the_memory_from_the_views_first_element_on() -> None:
    made = torch.zeros(8, dtype=torch.int32)
    uninitialised.fill(made[5:])
    found = uninitialised.unwritten(made[2:6], 4)
    assert found is not None
    words, pattern = found
    assert [int(word) == pattern for word in words] == [False, False, False, True]


def test_undone_torch_hands_out_what_it_did() -> None:
    before = torch.empty
    uninitialised.install()()
    assert torch.empty is before
