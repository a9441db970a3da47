"""SGLang's own kit for attention backends (release 0.5.23) passes on the CPU over the stand-ins, case by case."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.release

ROOT = Path(__file__).parent.parent.parent
PROBE = Path(__file__).parent / "kit_probe.py"

DENSE = (
    "mha_extend_page_size_1",
    "mha_extend_zero_prefix_exact_page",
    "mha_extend_zero_prefix_input_page_edges",
    "mha_extend_prefix_exact_page",
    "mha_extend_total_exact_page",
    "mha_extend_cross_page_boundary",
    "mha_extend_ragged_page_boundary",
    "mha_extend_page32_cross_boundary",
    "mha_decode_page_boundary",
    "mha_decode_bsz1_nonzero_prefix",
    "gqa_decode_page_boundary",
    "mqa_extend_total_exact_page",
)
WINDOW = ("swa_extend_no_prefix_window_edges", "swa_extend_prefix_window_edges")
CHAIN = ("verify_eagle_topk1", "verify_ngram_topk1", "verify_frozen_kv_mtp_topk1", "verify_dflash_topk1")
TREE = ("verify_eagle_topk2", "verify_ngram_topk2", "verify_frozen_kv_mtp_topk2")

IN_SCOPE = {
    "triton": (*DENSE, *WINDOW, *CHAIN, *TREE),
    "torch_native": (*DENSE, *WINDOW),
    "fa3": (*DENSE, *CHAIN, *TREE),
    "flashinfer": (*DENSE, *WINDOW, *CHAIN, *TREE),
    "trtllm_mha": (*DENSE, *WINDOW, *CHAIN),
}


@pytest.fixture(scope="module")
def answers(target_folder: Callable[[str], Path]) -> dict[str, Any]:
    """What the probe prints."""
    command = [sys.executable, "-W", "ignore", str(PROBE), str(target_folder("0.5.23")), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("backend", IN_SCOPE)
def test_every_case_in_scope_passes_and_no_contract_refuses_it(backend: str, answers: dict[str, Any]) -> None:
    assert {name: answers["outcomes"][backend][name] for name in IN_SCOPE[backend]} == dict.fromkeys(
        IN_SCOPE[backend], "ok"
    )


def test_the_kit_has_no_case_that_is_not_listed(answers: dict[str, Any]) -> None:
    listed = {*DENSE, *WINDOW, *CHAIN, *TREE}
    assert {backend: set(found) for backend, found in answers["outcomes"].items()} == dict.fromkeys(IN_SCOPE, listed)


@pytest.mark.parametrize("name", WINDOW)
def test_windows_are_out_of_fa3s_scope_since_the_kit_gives_its_model_no_chunk_size(
    name: str, answers: dict[str, Any]
) -> None:
    reason = "SkipTest: fa3 backend is not available: Attention chunk size is required for local attention"
    assert answers["outcomes"]["fa3"][name] == reason


def test_sglang_serves_torch_native_without_drafts(answers: dict[str, Any]) -> None:
    reason = "draft backend: EAGLE is not supported in attention backend torch_native"
    assert answers["refusals"]["torch_native"] == {"chain": reason, "tree": reason}


def test_sglang_serves_trtllm_mha_with_chains_alone(answers: dict[str, Any]) -> None:
    reason = "ServerArgs: trtllm_mha backend only supports topk = 1 for speculative decoding."
    assert answers["refusals"]["trtllm_mha"] == {"chain": "", "tree": reason}


@pytest.mark.parametrize("backend", ["triton", "fa3", "flashinfer"])
def test_sglang_serves_the_others_with_chains_and_trees(backend: str, answers: dict[str, Any]) -> None:
    assert answers["refusals"][backend] == {"chain": "", "tree": ""}
