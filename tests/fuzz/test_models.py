"""Models of other kinds on a real release: other scales, layers and caches, and latent attention."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.cells import attempts
from fuzz.finding import Verdict
from fuzz.program import Decode, Extend, Finish, Program, Row, Verify
from fuzz.script import write_script
from stubs.latent_worlds import with_latent
from stubs.world import World
from tests.conftest import RealWorker
from tests.fuzz.canned import PROVENANCE
from tests.fuzz.golden import MODES, SECONDS, golden, signatures

pytestmark = pytest.mark.release


@pytest.mark.parametrize("name", ["extend_decode", "chunked", "verify_chain"])
@pytest.mark.parametrize(
    "settings",
    [
        {"query_scalar": 9, "head_dim": 24},
        {"alternate_layers": 1, "num_layers": 2, "logit_cap": 30},
        {"save_kv_cache": 0},
        {"logit_shift": -200, "dtype": "float32"},
        {"logit_shift": 200, "dtype": "float32"},
        {"deterministic": 1, "sliding_window": 0},
    ],
    ids=lambda settings: next(iter(settings.items()))[0],
)
def test_models_of_other_kinds_are_served_right(real_worker: RealWorker, name: str, settings: dict[str, Any]) -> None:
    trace = real_worker("0.5.23").run(golden(name, decode="fa3", **settings), SECONDS)
    assert ([step.mode for step in trace.steps], signatures(trace)) == (MODES[name], [])


@pytest.mark.parametrize("pair", ["fa3:trtllm_mla", "triton:flashmla", "triton:cutedsl_mla"])
def test_backends_of_latent_attention_alone_serve_it_right(real_worker: RealWorker, pair: str) -> None:
    plain = next(attempts(pair, "cpu"))
    trace = real_worker("0.5.23").run(plain.program, SECONDS)
    assert {step.mode for step in trace.steps} == set(plain.modes)
    assert signatures(trace) == []


@pytest.mark.parametrize("decode", ["triton", "flashinfer", "cutedsl_mla"])
def test_trtllm_mla_serves_right_what_has_no_prefix(real_worker: RealWorker, decode: str) -> None:
    plain = next(attempts(f"trtllm_mla:{decode}", "cpu"))
    trace = real_worker("0.5.23").run(plain.program, SECONDS)
    assert {step.mode for step in trace.steps} == set(plain.modes)
    assert [step.mode for step in trace.steps if step.verdict is Verdict.BUG] == ["extend_prefix", "mixed"]
    assert signatures(trace) == ["numeric/wrong_output/TRTLLMMLABackend.forward_extend"]


@pytest.mark.parametrize(
    ("version", "found"), [("0.5.18", ["contract/TypeError/FlashMLABackend.forward_extend"]), ("0.5.23", [])]
)
def test_a_mixed_batch_is_no_prompt_to_flashmla_while_it_is_none_to_the_runner(
    real_worker: RealWorker, version: str, found: list[str]
) -> None:
    """Up to 0.5.18 the runner plans it under its own name; then as an extend."""
    plain = next(attempts("flashmla:triton", "cpu"))
    trace = real_worker(version).run(plain.program, SECONDS)
    assert signatures(trace) == found
    assert [step.mode for step in trace.steps if step.verdict is Verdict.BUG] == ["mixed"] * len(found)
    assert "mixed" in [step.mode for step in trace.steps]


CHUNKED = (
    Extend((Row(0, 66), Row(3, 3))),
    Finish((0,), keep=1),
    Extend((Row(1, 5, cached_from=0, cached=64), Row(2, 3))),
    Decode((1, 2, 3)),
)


def chunked(pair: str, prefix_chunk: int) -> Program:
    """A prefix of 64 tokens, attended to without absorption, beside a prompt that has none."""
    prefill, decode = pair.split(":")
    world = World(prefill=prefill, decode=decode, page_size=64, context_len=128, max_total_tokens=1024)
    return Program(replace(with_latent(world), prefix_chunk=prefix_chunk), CHUNKED)


@pytest.mark.parametrize("pair", ["flashinfer:fa3", "flashmla:triton"])
def test_prefixes_are_attended_to_without_absorption(real_worker: RealWorker, pair: str) -> None:
    assert signatures(real_worker("0.5.23").run(chunked(pair, 4096), SECONDS)) == []


@pytest.mark.parametrize(
    ("pair", "prefix_chunk", "backend"),
    [
        ("flashinfer:fa3", 7, "FlashInferMLAAttnBackend"),
        ("trtllm_mla:triton", 7, "TRTLLMMLABackend"),
        ("trtllm_mla:triton", 4096, "TRTLLMMLABackend"),
    ],
)
def test_parts_whose_weights_have_another_base_are_found(
    real_worker: RealWorker, pair: str, prefix_chunk: int, backend: str
) -> None:
    """SGLang merges flashinfer's LSE, of base 2, with a kernel for natural ones."""
    trace = real_worker("0.5.23").run(chunked(pair, prefix_chunk), SECONDS)
    assert signatures(trace) == [f"numeric/wrong_output/{backend}.forward_extend"]


def test_a_plan_that_a_wrapper_does_not_pass_on_is_found(real_worker: RealWorker) -> None:
    trace = real_worker("0.5.16").run(chunked("flashinfer:fa3", 4096), SECONDS)
    assert signatures(trace) == ["bounds/contract_breach/BatchPrefillWithRaggedKVCacheWrapper.qo_indptr"]


LATENT = {"num_heads": 4, "num_kv_heads": 1, "head_dim": 288, "kv_lora_rank": 256}


@pytest.mark.parametrize(
    "pair", ["triton:fa3", "fa3:triton", "torch_native:flex_attention", "flashinfer:triton", "fa3:flashinfer"]
)
@pytest.mark.parametrize("name", ["extend_decode", "chunked", "mixed", "prefix_hit", "idle"])
def test_latent_attention_is_served_right(real_worker: RealWorker, name: str, pair: str) -> None:
    prefill, decode = pair.split(":")
    program = golden(name, prefill=prefill, decode=decode, sliding_window=0, logit_cap=0, **LATENT)
    trace = real_worker("0.5.23").run(program, SECONDS)
    assert ([step.mode for step in trace.steps], signatures(trace)) == (MODES[name], [])


@pytest.mark.parametrize("pair", ["triton:fa3", "fa3:triton"])
@pytest.mark.parametrize(("name", "mode"), [("verify_chain", "prefill"), ("verify_tree", "decode")])
def test_drafts_of_latent_attention_are_served_right(real_worker: RealWorker, name: str, mode: str, pair: str) -> None:
    prefill, decode = pair.split(":")
    program = golden(name, prefill=prefill, decode=decode, spec_mode=mode, page_size=1, **LATENT)
    trace = real_worker("0.5.23").run(program, SECONDS)
    assert ([step.mode for step in trace.steps], signatures(trace)) == (MODES[name], [])


def test_a_backend_for_other_models_refuses_latent_attention_itself(real_worker: RealWorker) -> None:
    program = golden("extend_decode", decode="trtllm_mha", page_size=16, sliding_window=0, logit_cap=0, **LATENT)
    trace = real_worker("0.5.23").run(program, SECONDS)
    assert trace.verdict is Verdict.UNSUPPORTED
    assert trace.findings[0].title == "trtllm_mha backend can only be used with non-MLA models."


def test_a_temperature_that_a_backend_does_not_read_is_named(real_worker: RealWorker) -> None:
    program = golden("extend_decode", decode="fa3", num_kv_heads=2, num_heads=2, xai_temperature_len=2)
    assert signatures(real_worker("0.5.23").run(program, SECONDS)) == [
        "numeric/temperature_ignored/FlashAttentionBackend.forward_decode"
    ]


def test_a_soft_cap_that_was_not_planned_is_told_of_and_the_steps_go_on(real_worker: RealWorker) -> None:
    ops = (Extend((Row(0, 5), Row(1, 3))), Decode((0, 1)), Decode((0,)))
    world = World(prefill="triton", decode="flashinfer", logit_cap=30)
    trace = real_worker("0.5.23").run(Program(world, ops), SECONDS)
    verdicts = [(step.mode, step.verdict.value) for step in trace.steps]
    assert verdicts == [("extend", "ok"), ("decode", "bug"), ("decode", "bug")]
    assert signatures(trace) == ["bounds/contract_breach/BatchDecodeWithPagedKVCacheWrapper.logits_soft_cap"]


def test_behind_a_window_that_was_not_planned_flashinfers_verify_attends_to_the_first_keys(
    real_worker: RealWorker,
) -> None:
    drafts: dict[str, Any] = {"spec_algorithm": "EAGLE", "spec_steps": 1, "spec_topk": 1, "spec_draft_tokens": 2}
    world = World(prefill="flashinfer", decode="torch_native", sliding_window=3, overlap=0, **drafts)
    ops = (Extend((Row(0, 4),)), Verify((0,), (1,), draft_extend=0), Verify((0,), (1,), draft_extend=0))
    trace = real_worker("0.5.23").run(Program(world, ops), SECONDS)
    verdicts = [step.verdict.value for step in trace.steps if "verify" in step.mode]
    assert verdicts == ["bug", "bug"]
    assert signatures(trace) == [
        "numeric/wrong_output/FlashInferAttnBackend.forward_extend",  # where the window hides no key of those
        "bounds/contract_breach/BatchPrefillWithPagedKVCacheWrapper.window_left",
    ]


@pytest.mark.parametrize("oracle", ["bounds", "numeric"])
def test_a_script_shows_a_breach_and_one_what_lies_behind_it(
    real_worker: RealWorker, oracle: str, tmp_path: Path
) -> None:
    drafts: dict[str, Any] = {"spec_algorithm": "EAGLE", "spec_steps": 1, "spec_topk": 1, "spec_draft_tokens": 2}
    world = World(prefill="flashinfer", decode="torch_native", sliding_window=3, overlap=0, **drafts)
    program = Program(world, (Extend((Row(0, 5),)), Verify((0,), (1,), draft_extend=0)))
    trace = real_worker("0.5.23").run(program, SECONDS)
    finding = next(one for one in trace.findings if one.signature.oracle == oracle and "verify" in one.mode)
    script = tmp_path / "script.py"
    script.write_text(write_script(program, finding, trace, PROVENANCE))
    command = [sys.executable, "-m", "fuzz.run_script", str(script), "--target", "pypi:0.5.23"]
    assert subprocess.run(command, check=False, timeout=SECONDS).returncode == 1
