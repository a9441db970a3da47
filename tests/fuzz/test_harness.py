"""What the watched executor tells of a real release, and that watching changes nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from fuzz.features import CODE, code_number
from fuzz.generate import program_for
from fuzz.launch import ROOT
from fuzz.limits import Limits
from fuzz.program import Decode, Program, Verify
from fuzz.trace import Trace
from tests.conftest import RealWorker
from tests.fuzz.golden import golden

EXTEND_DECODE = golden("extend_decode")
HYBRID = "sglang.srt.layers.attention.hybrid_attn_backend.<module>.HybridAttnBackend"
watched = pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed")


def test_without_atheris_a_worker_says_what_to_install() -> None:
    code = "import sys; sys.modules['atheris'] = None; import fuzz.harness"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert "--engine atheris needs it where the workers run: pip install 'seamripper[fuzz]'" in done.stderr


@watched
@pytest.mark.release
def test_blocks_and_launches_that_ran_are_told(real_worker: RealWorker) -> None:
    starting, *steps = real_worker("0.5.23", "fuzz.harness").run(EXTEND_DECODE, 120).features
    assert len(starting) > 100
    assert code_number(f"{HYBRID}.init_forward_metadata 0") in starting
    assert code_number(f"{HYBRID}.get_verify_buffers_to_fill_after_draft 0") not in starting
    assert code_number("launch _fwd_kernel mask_ptr=None") in starting
    assert len(steps) == len(EXTEND_DECODE.ops) - 1
    told = [*starting, *(feature for step in steps for feature in step)]
    assert len(told) == len(set(told))
    assert min(told) >= CODE


@watched
@pytest.mark.release
def test_same_ops_tell_the_same(real_worker: RealWorker) -> None:
    worker = real_worker("0.5.23", "fuzz.harness")
    once, again = (worker.run(EXTEND_DECODE, 120).features for _ in range(2))
    assert once == again
    assert worker.run(EXTEND_DECODE.with_ops(EXTEND_DECODE.ops[:1]), 120).features == once[:1]


@watched
@pytest.mark.release
def test_watching_changes_nothing(real_worker: RealWorker) -> None:
    limits = Limits(pairs=("triton:fa3", "fa3:triton"))
    programs = [program for seed in range(8) if is_short(program := program_for(seed, limits))]
    assert {op.kind for program in programs for op in program.ops} > {"extend", "decode", "verify"}
    for program in programs:
        told = [seen(real_worker("0.5.23", name).run(program, 120)) for name in ("fuzz.harness", "fuzz.execute")]
        assert told[0] == told[1]


def is_short(program: Program) -> bool:
    return sum(isinstance(op, (Decode, Verify)) for op in program.ops) <= 6


def seen(trace: Trace) -> tuple[list[tuple[str, str]], list[str]]:
    return [(step.mode, step.verdict.value) for step in trace.steps], [str(one.signature) for one in trace.findings]
