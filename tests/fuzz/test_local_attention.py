"""Models with local attention on real releases: served right where SGLang does so, refused where it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz.finding import Verdict
from fuzz.program import Decode, Extend, Finish, Mixed, Op, Program, Row, Verify
from fuzz.script import write_script
from stubs.world import World
from tests.conftest import RealWorker
from tests.fuzz.canned import PROVENANCE
from tests.fuzz.golden import SECONDS, signatures

pytestmark = pytest.mark.release

# Prompts whole, in parts and behind a known prefix, and decodes over the ends of chunks of 8.
STEPS: tuple[Op, ...] = (
    Extend((Row(0, 21), Row(1, 6))),
    Decode((0, 1)),
    Decode((0, 1)),
    Decode((0, 1)),
    Extend((Row(2, 9, more=1),)),
    Extend((Row(2, 10),)),
    Finish((0,), keep=1),
    Extend((Row(3, 5, cached_from=0, cached=16),)),
    Decode((1, 2, 3)),
)


def program(pair: str, ops: tuple[Op, ...] = STEPS, **settings: Any) -> Program:
    prefill, decode = pair.split(":")
    plain = {"attention_chunk_size": 8, "page_size": 4, "num_layers": 2, "alternate_layers": 1}
    return Program(World(prefill=prefill, decode=decode, **(plain | settings)), ops)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"page_size": 1},
        {"alternate_layers": 0},
        {"window_tokens": 256},
        {"window_tokens": 256, "radix_cache": 0},
        {"graph": 2},
        {"dtype": "bfloat16", "kv_dtype": "fp8_e4m3"},
        {"wrapper": "tbo"},
    ],
    ids=lambda settings: next(reversed(settings), "plain"),
)
def test_fa3_serves_chunks_right(real_worker: RealWorker, settings: dict[str, Any]) -> None:
    ops = tuple(op for op in STEPS if settings.get("radix_cache", 1) or not isinstance(op, Finish) and op != STEPS[7])
    if not settings.get("radix_cache", 1):
        ops = (*ops[:-1], Decode((1, 2)))
    trace = real_worker("0.5.23").run(program("fa3:fa3", ops, **settings), SECONDS)
    assert signatures(trace) == []
    assert trace.verdict is Verdict.OK
    assert len(trace.steps) == len(ops)


def test_a_chain_is_verified_right(real_worker: RealWorker) -> None:
    chain = {"spec_algorithm": "EAGLE", "spec_steps": 2, "spec_topk": 1, "spec_draft_tokens": 3}
    ops = (Extend((Row(0, 7),)), Verify((0,), (2,)), Verify((0,), (1,)))
    trace = real_worker("0.5.23").run(program("fa3:fa3", ops, **chain), SECONDS)
    assert signatures(trace) == []
    assert [step.verdict for step in trace.steps].count(Verdict.OK) == len(trace.steps) >= 4


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
@pytest.mark.parametrize("pair", ["fa3:flashinfer", "torch_native:fa3"])
def test_what_sglang_does_not_serve_is_refused_in_its_words(real_worker: RealWorker, pair: str, version: str) -> None:
    trace = real_worker(version).run(program(pair), SECONDS)
    assert trace.verdict is Verdict.UNSUPPORTED
    (name,) = set(pair.split(":")) - {"fa3"}
    assert trace.findings[0].message == (
        "Refused: ServerArgs: fa3, aiter, triton, ascend, trtllm_mha or intel_xpu is required for Llama4 model "
        f"but got {name}"
    )


@pytest.mark.parametrize(("pair", "backend"), [("triton:fa3", "TritonAttnBackend.forward_extend")])
def test_a_backend_that_knows_no_chunks_is_found(real_worker: RealWorker, pair: str, backend: str) -> None:
    assert signatures(real_worker("0.5.23").run(program(pair), SECONDS)) == [f"numeric/chunk_ignored/{backend}"]


def test_what_is_longer_than_no_chunk_is_right_everywhere(real_worker: RealWorker) -> None:
    trace = real_worker("0.5.23").run(program("triton:fa3", attention_chunk_size=64), SECONDS)
    assert signatures(trace) == []


def test_slots_taken_for_pages_are_found(real_worker: RealWorker) -> None:
    """0.5.16 makes its chunks' tables of a table of tokens, which later releases make one of pages first."""
    found = signatures(real_worker("0.5.16").run(program("fa3:fa3"), SECONDS))
    assert found == [f"numeric/wrong_output/FlashAttentionBackend.forward_{step}" for step in ("extend", "decode")]
    assert signatures(real_worker("0.5.16").run(program("fa3:fa3", page_size=1), SECONDS)) == []


@pytest.mark.parametrize("version", ["0.5.18", "0.5.23"])
def test_chunks_that_a_step_leaves_out_are_found(real_worker: RealWorker, version: str) -> None:
    """fa3 plans them for prompts alone, and not for prompts mixed with decodes; from 0.5.19 on it is given none such."""
    ops = (Extend((Row(0, 9),)), Mixed((Row(1, 9),), (0,)))
    trace = real_worker(version).run(program("fa3:fa3", ops, page_size=1), SECONDS)
    found = ["numeric/chunk_ignored/FlashAttentionBackend.forward_extend"] if version == "0.5.18" else []
    assert signatures(trace) == found
    assert [step.mode for step in trace.steps] == ["extend", "mixed"]
    assert [step.mode for step in trace.steps if step.verdict is Verdict.BUG] == ["mixed"] * len(found)


def test_a_pool_of_the_chunks_own_is_read_as_if_it_were_all_layers(real_worker: RealWorker) -> None:
    trace = real_worker("0.5.23").run(program("fa3:triton", window_tokens=256), SECONDS)
    assert "bounds/row_read/_fwd_grouped_kernel_stage1.K_Buffer" in signatures(trace)


@pytest.mark.parametrize(
    ("pair", "ops", "page", "right"),
    [
        ("fa3:triton", (Extend((Row(0, 9),)),), 4, "0.5.23"),
        # From 0.5.19 on SGLang's runner plans a mixed batch as an extend, and the script as it does.
        ("fa3:triton", (Extend((Row(0, 3),)), Mixed((Row(1, 9),), (0,))), 1, "0.5.19"),
    ],
    ids=["extend", "mixed"],
)
def test_a_script_shows_it_and_tells_the_release_that_has_it_right(
    real_worker: RealWorker, tmp_path: Path, pair: str, ops: tuple[Op, ...], page: int, right: str
) -> None:
    plain = program(pair, ops, num_layers=1, alternate_layers=0, page_size=page)
    trace = real_worker("0.5.16").run(plain, SECONDS)
    script = tmp_path / "script.py"
    script.write_text(write_script(plain, trace.findings[0], trace, PROVENANCE))
    for version, status in (("0.5.16", 1), (right, 0)):
        command = [sys.executable, "-m", "fuzz.run_script", str(script), "--target", f"pypi:{version}"]
        assert subprocess.run(command, check=False, timeout=SECONDS).returncode == status


def test_under_sglangs_own_runner(real_worker: RealWorker) -> None:
    ops = (Extend((Row(0, 21),)), Decode((0,)))
    real = {"runner": "real", "num_heads": 2, "num_kv_heads": 2}
    trace = real_worker("0.5.23").run(program("fa3:triton", ops, **real), SECONDS)
    assert signatures(trace) == ["numeric/chunk_ignored/TritonAttnBackend.forward_decode"]
    assert [step.verdict for step in trace.steps] == [Verdict.OK, Verdict.BUG]  # fa3's prompt is right
    pooled = real_worker("0.5.23").run(program("fa3:triton", ops, window_tokens=256, **real), SECONDS)
    assert pooled.verdict is Verdict.UNSUPPORTED
