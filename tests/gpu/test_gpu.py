"""On a GPU: a short campaign on compiled kernels, and a store behind a buffer, seen by guards and by compute-sanitizer."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from fuzz.campaign import CampaignOptions, run_campaign
from fuzz.display import Display, console
from fuzz.finding import Verdict
from fuzz.launch import WorkerOptions
from fuzz.process import WorkerProcess
from fuzz.program import Decode, Extend, Program, Row
from fuzz.record import Record
from fuzz.revisions import Rig, replay_sanitized
from fuzz.sanitizer import PROGRAM as SANITIZER
from fuzz.targets import open_target
from fuzz.trace import Trace
from stubs.world import World

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

PLANTED, FAR = "tests.gpu.planted_executor", 1000  # elements behind the pool that stand for terabytes
PAIR = "triton:torch_native"
SECONDS = 300  # a kernel is compiled when it is first met


def program(behind: int, device: str = "cuda") -> Program:
    """An extend and a decode; ``behind`` is where the planted kernel stores, 0 nowhere."""
    world = World(prefill="triton", decode="torch_native", device=device, dtype="float16")
    return Program(world, (Extend((Row(0, 3),)), Decode((0,))), behind)


def run(spec: str, out: Path, given: Program) -> Trace:
    with open_target(spec) as had:
        worker = WorkerProcess(WorkerOptions(sys.executable, had.folder, out, device="cuda", executor=PLANTED))
        try:
            return worker.run(given, SECONDS)
        finally:
            worker.close()


def test_campaign_runs_and_every_step_is_judged(spec: str, tmp_path: Path) -> None:
    options = CampaignOptions(
        target=spec,
        device="cuda",
        pairs=(PAIR,),
        programs=20,
        python=sys.executable,
        out=tmp_path / "out",
        repros=tmp_path / "repros",
    )
    with Display(console(stderr=True)) as display:
        result = run_campaign(options, display)
    assert result.exit_code in (0, 1), result.reason
    lines = (options.out / "records-0.jsonl").read_text().splitlines()
    records = [record for record in map(Record.from_line, lines) if record.device == "cuda"]
    assert len(records) == 20
    assert {record.verdict for record in records} <= {Verdict.OK, Verdict.BUG, Verdict.UNSUPPORTED}
    assert sum(record.verdict is Verdict.OK for record in records) >= 10


def test_sound_program_is_clean(spec: str, tmp_path: Path) -> None:
    trace = run(spec, tmp_path, program(0))
    assert (trace.verdict, trace.findings) == (Verdict.OK, ())
    assert [step.mode for step in trace.steps] == ["extend", "decode"]


def test_store_behind_a_pool_is_seen_by_its_guard(spec: str, tmp_path: Path) -> None:
    trace = run(spec, tmp_path, program(3))
    assert [(str(finding.signature), finding.op_index) for finding in trace.findings] == [
        ("bounds/guard_overwritten/TorchNativeAttnBackend.k_buffer", 1)
    ]


def test_fault_of_the_gpu_costs_one_program(spec: str, tmp_path: Path) -> None:
    with open_target(spec) as had:
        worker = WorkerProcess(WorkerOptions(sys.executable, had.folder, tmp_path, device="cuda", executor=PLANTED))
        try:
            (finding,) = worker.run(program(FAR), SECONDS).findings
            assert (str(finding.signature), finding.op_index) == ("bounds/cuda_fault/TorchNativeAttnBackend.decode", 1)
            assert worker.run(program(0), SECONDS).verdict is Verdict.OK
        finally:
            worker.close()


def test_store_behind_a_pool_is_seen_by_compute_sanitizer(spec: str, tmp_path: Path) -> None:
    if shutil.which(SANITIZER) is None:
        pytest.skip(f"no {SANITIZER} on PATH")
    path = tmp_path / "planted.jsonl"
    path.write_text(program(1, device="cpu").text)
    (result,) = replay_sanitized([path], spec, "memcheck", Rig(sys.executable, tmp_path / "logs", executor=PLANTED))
    assert result.cell.detail == "bounds/sanitizer_invalid_write/store_behind"
    assert result.exit_code == 1
