"""Latent KV in fp8 on real releases: served right where SGLang does so, refused where it does, and faults in it are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.cells import attempts
from fuzz.finding import Verdict
from fuzz.program import Decode, Extend, Finish, Program, Row
from fuzz.repro import read_repro
from fuzz.script import write_repro
from stubs.latent_worlds import with_latent
from stubs.world import World
from tests.conftest import RealWorker
from tests.fuzz.canned import PROVENANCE
from tests.fuzz.golden import SECONDS, signatures

pytestmark = pytest.mark.release

FP8 = {"dtype": "bfloat16", "kv_dtype": "fp8_e4m3"}


def plain(pair: str, **settings: Any) -> Program:
    """Prompts, prefixes, chunks, mixed batches and decodes over latent KV in fp8."""
    program = next(attempts(pair, "cpu")).program
    world = program.world if program.world.kv_lora_rank else with_latent(program.world)
    return replace(program, world=replace(world, **FP8 | settings))


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
@pytest.mark.parametrize(
    "pair", ["triton:trtllm_mla", "fa3:flashmla", "trtllm_mla:cutedsl_mla", "flashinfer:triton", "torch_native:fa3"]
)
def test_right_steps_are_judged_right(real_worker: RealWorker, version: str, pair: str) -> None:
    trace = real_worker(version).run(plain(pair), SECONDS)
    assert signatures(trace) == []
    assert {step.mode for step in trace.steps} >= {"extend", "extend_prefix", "extend_chunked", "mixed", "decode"}


@pytest.mark.parametrize("graph", [0, 1])
@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_chains_are_verified_right(real_worker: RealWorker, mode: str, graph: int) -> None:
    steps = (f"verify_chain_{mode}", f"verify_chain_{mode}_graph")[graph]
    tries = (one for one in attempts("triton:trtllm_mla", "cpu") if steps in one.modes)
    program = next(one.program for one in tries if one.program.world.spec_steps == 1)
    trace = real_worker("0.5.23").run(replace(program, world=replace(program.world, **FP8)), SECONDS)
    assert signatures(trace) == []
    assert steps in {step.mode for step in trace.steps}


CHUNKED = (
    Extend((Row(0, 66), Row(3, 3))),
    Finish((0,), keep=1),
    Extend((Row(1, 5, cached_from=0, cached=64), Row(2, 3))),
    Decode((1, 2, 3)),
)


@pytest.mark.parametrize("pair", ["flashmla:triton", "flashinfer:trtllm_mla"])
def test_prefixes_come_out_of_fp8_right(real_worker: RealWorker, pair: str) -> None:
    world = replace(plain(pair).world, page_size=64, context_len=128, prefix_chunk=4096)
    trace = real_worker("0.5.23").run(Program(replace(world, max_running_requests=4), CHUNKED), SECONDS)
    assert len(trace.steps) == len(CHUNKED)
    assert signatures(trace) == []


@pytest.mark.parametrize(
    ("version", "pair", "names"),
    [
        ("0.5.16", "triton:trtllm_mla", "TensorRT-LLM MLA backend only supports kv-cache-dtype of fp8_e4m3"),
        ("0.5.23", "trtllm_mla:triton", "TensorRT-LLM MLA backend only supports kv-cache-dtype of fp8_e4m3"),
        ("0.5.23", "fa3:cutedsl_mla", "CuteDSL MLA backend only supports kv-cache-dtype of fp8_e4m3"),
    ],
)
def test_what_sglang_does_not_serve_is_refused_in_its_words(
    real_worker: RealWorker, version: str, pair: str, names: str
) -> None:
    trace = real_worker(version).run(plain(pair, kv_dtype="fp8_e5m2"), SECONDS)
    assert trace.verdict is Verdict.UNSUPPORTED
    assert names in trace.findings[0].message


# What tests.fuzz.narrow_executor plants, in its order -> the pair, the scale and what is found.
PLANTED = {
    "nothing": ("fa3:flashmla", 0, []),
    "read unscaled": ("triton:triton", 16, ["numeric/kv_scale_ignored/TritonAttnBackend.forward_decode"]),
    "stored unscaled": (
        "triton:triton",
        16,
        [
            f"{kind}/TritonAttnBackend.forward_decode"
            for kind in ("state/kv_stored_unscaled", "numeric/stored_kv_wrong")
        ],
    ),
    "next position": (
        "fa3:trtllm_mla",
        0,
        [f"{kind}/TRTLLMMLABackend.forward_decode" for kind in ("state/kv_not_written", "numeric/wrong_output")],
    ),
    "keys not quantised": (
        "trtllm_mla:triton",
        0,
        ["bounds/contract_breach/trtllm_ragged_attention_deepseek.key:dtype"],
    ),
    "queries in 16 bits": ("fa3:flashmla", 0, ["bounds/contract_breach/flash_mla_with_kvcache.k_cache:dtype"]),
}
OPS = (Extend((Row(0, 9),)), Decode((0,)), Decode((0,)))


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found_and_nothing_else_is(real_worker: RealWorker, planted: str) -> None:
    pair, scale, expected = PLANTED[planted]
    program = Program(plain(pair, kv_scale=scale).world, OPS, list(PLANTED).index(planted))
    trace = real_worker("0.5.23", executor="tests.fuzz.narrow_executor").run(program, SECONDS)
    assert signatures(trace) == expected


def test_a_backend_that_stores_without_the_scale_is_found_and_saved(real_worker: RealWorker, tmp_path: Path) -> None:
    program = Program(plain("fa3:triton", kv_scale=4).world, OPS[:1])
    trace = real_worker("0.5.23").run(program, SECONDS)
    assert signatures(trace) == ["state/kv_stored_unscaled/FlashAttentionBackend.forward_extend"]
    script = tmp_path / "script.py"
    script.write_text(write_repro(program, trace.findings[0], trace, PROVENANCE))
    saved = read_repro(script)
    assert (saved.program, str(saved.signature)) == (program, signatures(trace)[0])
    assert signatures(real_worker("0.5.23").run(saved.program, SECONDS)) == signatures(trace)


def test_a_kernel_for_e4m3_alone_is_not_given_e5m2_unnoticed(real_worker: RealWorker) -> None:
    """No check of SGLang's says so of FlashMLA."""
    trace = real_worker("0.5.23").run(plain("fa3:flashmla", kv_dtype="fp8_e5m2"), SECONDS)
    assert signatures(trace) == ["bounds/contract_breach/flash_mla_with_kvcache.k_cache:dtype"]


def test_a_world_in_fp8_is_read_again_as_it_was_written() -> None:
    world = plain("triton:trtllm_mla", kv_scale=16).world
    assert World.from_json(world.to_json()) == world
