"""The rules of the speculative algorithms' numbers."""

from __future__ import annotations

import pytest

from stubs import speculation


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("", 0, 0, 0), ""),
        (("", 1, 0, 0), "world.spec_* are set but spec_algorithm is empty; expected all 0"),
        (("NGRAM", 2, 2, 5), ""),
        (("NGRAM", 1, 2, 5), "world.spec_steps is 1; of NGRAM SGLang makes width // topk = 2"),
        (("NGRAM", 0, 3, 2), "world speculative steps=0 topk=3 width=2; expected >=1, >=1, >=2"),
        (("NGRAM", 0, 0, 2), "world speculative steps=0 topk=0 width=2; expected >=1, >=1, >=2"),
        (("DFLASH", 1, 1, 4), ""),
        (("DFLASH", 3, 1, 4), "world speculative steps=3 topk=1; of DFLASH SGLang makes both 1"),
        (("DSPARK", 1, 1, 4), ""),
        (("DSPARK", 1, 2, 4), "world speculative steps=1 topk=2; of DSPARK SGLang makes both 1"),
        (("DFLASH", 1, 1, 1), "world speculative steps=1 topk=1 width=1; expected >=1, >=1, >=2"),
        (("EAGLE", 3, 1, 3), "world.spec_draft_tokens is 3; with topk 1 SGLang forces steps + 1 = 4"),
    ],
)
def test_what_is_wrong(given: tuple[str, int, int, int], reason: str) -> None:
    assert speculation.fault_of(*given) == reason


@pytest.mark.parametrize(
    ("algorithm", "topk", "shape"),
    [
        ("", 0, ""),
        ("EAGLE", 1, "chain"),
        ("EAGLE", 2, "tree"),
        ("NGRAM", 1, "ngram"),
        ("DFLASH", 1, "dflash"),
        ("DSPARK", 1, "dspark"),
    ],
)
def test_shapes(algorithm: str, topk: int, shape: str) -> None:
    assert speculation.shape_of(algorithm, topk) == shape


def test_drafts_without_kv_reserve_their_rows_alone() -> None:
    assert speculation.reserve("EAGLE", 2, 3, 5, 4) == 24
    assert speculation.reserve("NGRAM", 1, 3, 5, 4) == 5
    assert speculation.reserve("DFLASH", 1, 1, 5, 4) == 5
    assert speculation.reserve("", 0, 0, 0, 4) == 0
