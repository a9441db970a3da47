"""Whose turn it is: every pair, and those of latent attention alone more seldom."""

from __future__ import annotations

from collections import Counter

from fuzz.limits import Limits
from fuzz.turns import stratum


def pairs_of(seeds: range, *pairs: str) -> list[str]:
    return [stratum(seed, Limits(pairs=pairs)).pairs[0] for seed in seeds]


def test_pairs_take_turns() -> None:
    assert pairs_of(range(5), "triton:fa3", "fa3:triton") == [
        "triton:fa3", "fa3:triton", "triton:fa3", "fa3:triton", "triton:fa3"
    ]  # fmt: skip


def test_every_fifth_program_is_of_a_pair_for_latent_attention_alone() -> None:
    drawn = pairs_of(range(60), "triton:fa3", "flashmla:fa3", "fa3:triton", "triton:trtllm_mla", "fa3:flashinfer")
    assert drawn[:10] == [
        "triton:fa3", "fa3:triton", "fa3:flashinfer", "triton:fa3", "flashmla:fa3",
        "fa3:triton", "fa3:flashinfer", "triton:fa3", "fa3:triton", "triton:trtllm_mla",
    ]  # fmt: skip
    assert Counter(drawn) == {
        "triton:fa3": 16, "fa3:triton": 16, "fa3:flashinfer": 16, "flashmla:fa3": 6, "triton:trtllm_mla": 6
    }  # fmt: skip


def test_latent_attention_alone_has_every_turn_where_there_is_nothing_else() -> None:
    assert Counter(pairs_of(range(10), "triton:flashmla", "flashmla:triton")) == {
        "triton:flashmla": 5,
        "flashmla:triton": 5,
    }


def test_a_pair_goes_round_its_kinds() -> None:
    limits = Limits(pairs=("triton:fa3",), speculative={"triton:fa3": {"prefill": 2}})
    assert [stratum(seed, limits).shapes[0] for seed in range(6)] == [*limits.shapes, *limits.shapes][:6]
