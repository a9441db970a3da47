"""The names of steps."""

from __future__ import annotations

import pytest

from fuzz.trace import family_of


@pytest.mark.parametrize(
    ("mode", "family"),
    [
        ("extend_chunked", "extend"),
        ("mixed", "mixed"),
        ("decode", "decode"),
        ("decode_graph", "decode_graph"),
        ("decode_padded", "decode"),
        ("verify_chain_prefill", "verify"),
        ("verify_ngram_decode_graph", "verify_graph"),
        ("draft_extend_graph", "draft_extend_graph"),
        ("idle_relabelled", "idle"),
    ],
)
def test_family_has_no_word_of_requests_routes_and_padding(mode: str, family: str) -> None:
    assert family_of(mode) == family
