"""The stand-in that empties the rows of requests without keys."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.zero_kv import fixup_zero_kv_rows
from tests.stubs.breach import refused
from tests.stubs.flashinfer_calls import ints


def call(**changes: Any) -> dict[str, Any]:
    """Three requests of 1, 2 and 1 rows; the second has no keys."""
    tensors = {"out": torch.ones(4, 2, 3), "lse": torch.ones(4, 2)}
    return {**tensors, "kv_lens": ints(5, 0, 7), "cum_seq_lens": ints(0, 1, 3, 4), "max_seq_len": 2} | changes


def test_rows_without_keys_weigh_nothing_and_others_stay() -> None:
    given = call()
    fixup_zero_kv_rows(**given)
    assert given["out"][:, 0, 0].tolist() == [1, 0, 0, 1]
    assert given["lse"][:, 0].tolist() == [1, float("-inf"), float("-inf"), 1]


BREACHES = [
    ("kv_lens", {"kv_lens": torch.tensor([5, 0, 7])}, None),
    ("cum_seq_lens", {"cum_seq_lens": torch.tensor([0, 1, 3, 4])}, None),
    ("cum_seq_lens", {"cum_seq_lens": ints(0, 1, 3)}, None),
    ("cum_seq_lens", {"cum_seq_lens": ints(0, 1, 3, 5)}, None),
    ("lse", {"lse": torch.ones(3, 2)}, None),
    ("lse", {"lse": torch.ones(4, 2).half()}, None),
    ("lse", {"lse": torch.ones(2, 4).T}, None),
    ("out", {"out": torch.ones(4, 3, 2).transpose(1, 2)}, None),
    ("max_seq_len", {"max_seq_len": 1}, 1),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), BREACHES)
def test_a_call_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused("fixup_zero_kv_rows", argument, request_at_fault):
        fixup_zero_kv_rows(**call(**changes))
