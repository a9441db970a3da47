"""The project's own list of known bugs: it can be read, and a broad `match` does not take another fault for its bug."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.known_bugs import KnownBug, read_bugs

LIST = Path(__file__).parents[2] / "benchmarks" / "known_bugs.toml"


@pytest.fixture(scope="module")
def bugs() -> dict[str, KnownBug]:
    return {bug.id: bug for bug in read_bugs(LIST)}


def test_a_width_of_queries_that_is_not_the_configured_one_is_known_by_the_kernels_rows(
    bugs: dict[str, KnownBug],
) -> None:
    kernel = "trtllm_batch_decode_with_kv_cache"
    assert bugs["B41"].matches(f"{kernel}: query: has 6 rows for 2 requests of 4: {kernel}: query: has 6 rows")
    assert bugs["B41"].matches(f"{kernel}: max_q_len of request 1: 4 does not cover 6 rows")


@pytest.mark.parametrize(
    "said",
    [
        "verify_ngram_decode on TRTLLMHAAttnBackend: tree mask ignored: largest error 2 in float32, layer 0",
        "verify_chain_decode on TRTLLMHAAttnBackend: wrong output: largest error 2 in float32, layer 0",
        "trtllm_batch_decode_with_kv_cache: query: is torch.float32, the KV cache torch.float16",
        "trtllm_batch_context_with_kv_cache: cum_seq_lens_kv of request 0: says 0 keys, seq_lens 4",
    ],
)
def test_another_fault_of_the_same_backend_is_not_taken_for_it(bugs: dict[str, KnownBug], said: str) -> None:
    assert not bugs["B41"].matches(said)
