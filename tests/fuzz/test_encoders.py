"""Models with an encoder on real releases: served right where SGLang does so, refused where it does, and what goes wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz.finding import Verdict
from fuzz.program import Decode, Extend, Finish, Op, Program, Retract, Row
from fuzz.script import write_script
from stubs.world import World
from tests.conftest import RealWorker
from tests.fuzz.canned import PROVENANCE
from tests.fuzz.encoder_executor import FAULTS
from tests.fuzz.golden import SECONDS, signatures

pytestmark = pytest.mark.release

MISLED = "tests.fuzz.encoder_executor"
# Requests with an encoder and without in a batch, an encoder that is known already, and one that runs again.
STEPS: tuple[Op, ...] = (
    Extend((Row(0, 9, encoder=5), Row(1, 4))),
    Decode((0, 1)),
    Decode((0, 1)),
    Extend((Row(2, 11, encoder=3),)),
    Decode((0, 1, 2)),
    Finish((0,), keep=1),
    Extend((Row(3, 4, cached_from=0, cached=7, encoder=5), Row(4, 5, encoder=2))),
    Decode((1, 2, 3, 4)),
    Retract((2,)),
    Extend((Row(2, 14, encoder=3),)),
    Decode((3, 2)),
)
ALONE: tuple[Op, ...] = (Extend((Row(0, 9, encoder=5),)), Decode((0,)), Decode((0,)))


def program(pair: str, ops: tuple[Op, ...] = STEPS, seed: int = 0, **settings: Any) -> Program:
    prefill, decode = pair.split(":")
    plain = {"encoder_decoder": 1, "num_layers": 2}
    return Program(World(prefill=prefill, decode=decode, **(plain | settings)), ops, seed)


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
@pytest.mark.parametrize("pair", ["torch_native:fa3", "fa3:flashinfer", "flashinfer:torch_native"])
def test_three_backends_serve_it_right(real_worker: RealWorker, pair: str, version: str) -> None:
    trace = real_worker(version).run(program(pair, num_layers=3), SECONDS)
    assert signatures(trace) == []
    assert trace.verdict is Verdict.OK
    assert [step.mode for step in trace.steps if step.mode not in ("finish", "retract")] == [
        *("extend", "decode", "decode", "extend", "decode", "extend_prefix", "decode", "extend", "decode")
    ]


@pytest.mark.parametrize("pair", ["triton:fa3", "fa3:triton"])
def test_what_sglang_does_not_serve_is_refused_in_its_words(real_worker: RealWorker, pair: str) -> None:
    trace = real_worker("0.5.23").run(program(pair), SECONDS)
    assert trace.verdict is Verdict.UNSUPPORTED
    assert "Cross attention is not supported in the triton attention backend" in trace.findings[0].message


def test_a_step_whose_requests_all_have_an_encoder_is_replayed_and_no_other(real_worker: RealWorker) -> None:
    ops = (*ALONE, Extend((Row(1, 4),)), Decode((0, 1)), Decode((0,)))
    trace = real_worker("0.5.23").run(program("torch_native:flashinfer", ops, graph=1), SECONDS)
    assert signatures(trace) == []
    modes = [step.mode for step in trace.steps]
    assert modes == ["extend", "decode_graph", "decode_graph", "extend", "decode", "decode_graph"]


def test_a_table_read_behind_the_end_of_a_row_is_found(real_worker: RealWorker) -> None:
    """fa3's replay takes as many entries behind the encoder's as a row has in all."""
    trace = real_worker("0.5.23").run(program("torch_native:fa3", ALONE, graph=1), SECONDS)
    assert signatures(trace) == ["contract/IndexError/FlashAttentionBackend._apply_cuda_graph_metadata"]


def test_a_table_as_wide_as_anothers_text_behind_an_encoder_is_found(real_worker: RealWorker) -> None:
    """fa3 takes of each row as many entries behind its encoder as the longest text has: here 25 and 58 of 68."""
    ops = (Extend((Row(0, 30, encoder=25), Row(1, 58))),)
    trace = real_worker("0.5.23").run(program("fa3:flashinfer", ops), SECONDS)
    assert signatures(trace) == ["contract/IndexError/FlashAttentionBackend.init_forward_metadata"]


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("none", []),
        ("own tokens begin early", ["numeric/wrong_output/TorchNativeAttnBackend.forward_extend"]),
        ("encoder ends early", ["numeric/newest_prefix_key_unseen/TorchNativeAttnBackend.forward_extend"]),
        ("encoder is stored in another order", ["state/kv_not_written/TorchNativeAttnBackend.forward_extend"]),
    ],
)
def test_planted_fault_is_found_and_nothing_else_is(real_worker: RealWorker, fault: str, found: list[str]) -> None:
    seed = list(FAULTS).index(fault)
    trace = real_worker("0.5.23", MISLED).run(program("torch_native:flashinfer", ALONE, seed), SECONDS)
    assert signatures(trace) == found


def test_an_old_release_refuses_more_than_one_request(real_worker: RealWorker) -> None:
    trace = real_worker("0.5.12").run(program("flashinfer:fa3"), SECONDS)
    assert trace.verdict is Verdict.UNSUPPORTED
    assert trace.findings[0].message == "AssertionError: Only encoder size 1 is supported for now"


def test_an_encoder_ignored_is_found_and_a_script_tells_the_release_that_has_it_right(
    real_worker: RealWorker, tmp_path: Path
) -> None:
    """torch_native knows of no encoder up to 0.5.12."""
    small = program("torch_native:flashinfer", (Extend((Row(0, 5, encoder=3), Row(1, 2))),))
    trace = real_worker("0.5.12").run(small, SECONDS)
    assert signatures(trace) == ["numeric/encoder_ignored/TorchNativeAttnBackend.forward_extend"]
    script = tmp_path / "script.py"
    script.write_text(write_script(small, trace.findings[0], trace, PROVENANCE))
    for version, status in (("0.5.12", 1), ("0.5.23", 0)):
        command = [sys.executable, "-m", "fuzz.run_script", str(script), "--target", f"pypi:{version}"]
        assert subprocess.run(command, check=False, timeout=SECONDS).returncode == status
