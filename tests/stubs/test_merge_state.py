"""The merge stand-in: numbers worked out by hand, and a refusal for each line of the contract."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.contract import ContractBreach
from stubs.kernels.merge_state import merge_state_v2


def merge_call(**changes: Any) -> dict[str, Any]:
    """One token, two heads: sums of exponentials 1 and 3 in the first head, 2 and nothing in the second."""
    call = {
        "v_a": torch.tensor([[[4.0] * 4, [5.0] * 4]]),
        "s_a": torch.tensor([[0.0, math.log(2.0)]]),
        "v_b": torch.tensor([[[8.0] * 4, [9.0] * 4]]),
        "s_b": torch.tensor([[math.log(3.0), float("-inf")]]),
    }
    return call | changes


def test_outputs_are_weighed_by_their_sums() -> None:
    out, lse = merge_state_v2(**merge_call())
    assert torch.allclose(out[0, :, 0], torch.tensor([7.0, 5.0]))
    assert torch.allclose(lse[0], torch.tensor([math.log(4.0), math.log(2.0)]))


def test_an_lse_of_plus_infinity_counts_as_nothing() -> None:
    out, _ = merge_state_v2(**merge_call(s_b=torch.tensor([[float("inf"), 0.0]])))
    assert out[0, 0, 0].item() == 4.0


def test_given_outputs_are_filled_and_returned() -> None:
    v_merged, s_merged = torch.zeros(1, 2, 4), torch.zeros(1, 2)
    out, lse = merge_state_v2(**merge_call(), v_merged=v_merged, s_merged=s_merged)
    assert (out is v_merged, lse is s_merged) == (True, True)
    assert v_merged[0, 0].tolist() == pytest.approx([7.0] * 4)


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("v_a", {"v_a": torch.zeros(2, 4)}),
        ("v_a", {"v_a": torch.zeros(1, 4, 2).transpose(1, 2)}),
        ("v_a", {"v_a": torch.zeros(1, 2, 6), "v_b": torch.zeros(1, 2, 6)}),
        ("s_a", {"s_a": torch.zeros(2, 1).T.expand(1, 2).T}),
        ("s_b", {"s_b": torch.zeros(1, 4)[:, ::2]}),
        ("s_b", {"s_b": torch.zeros(1, 3)}),
        ("v_b", {"v_b": torch.zeros(2, 2, 4)}),
        ("v_b", {"v_b": torch.zeros(1, 2, 4, dtype=torch.float16)}),
        ("v_merged", {"v_merged": torch.zeros(1, 2, 8)}),
        ("s_merged", {"s_merged": torch.zeros(2, 2)}),
    ],
)
def test_a_merge_outside_the_contract_is_refused(argument: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ContractBreach) as caught:
        merge_state_v2(**merge_call(**changes))
    assert (caught.value.function, caught.value.argument) == ("merge_state_v2", argument)
