"""The command line and environment of a worker, which starts in a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fuzz.launch import ROOT, WorkerOptions, environment


def test_paths_hold_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/usr/bin/env")
    options = WorkerOptions("bin/python", Path("target"), Path("out"), number=2)
    assert options.command(5, 6) == [
        f"{tmp_path}/bin/python",
        "-m",
        "fuzz.worker",
        "--request-fd=5",
        "--reply-fd=6",
        f"--fault-file={tmp_path}/out/worker-2.stack",
        "--device=cpu",
        f"--slot-file={tmp_path}/out/worker-2.slot",
        "--executor=fuzz.execute",
        f"--folder={tmp_path}/target",
    ]


def test_bare_name_is_looked_up_on_the_path(tmp_path: Path) -> None:
    assert WorkerOptions("python3", None, tmp_path).command(5, 6)[0] == "python3"


def test_environment_finds_our_rooms_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"here{os.pathsep}/there")
    made = environment()
    assert made["PYTHONPATH"].split(os.pathsep) == [str(ROOT), f"{tmp_path}/here", "/there"]
    assert (made["OMP_NUM_THREADS"], made["PYTHONHASHSEED"]) == ("1", "0")
    assert (ROOT / "fuzz" / "launch.py").is_file()


def test_worker_for_the_cpu_sees_no_gpu() -> None:
    made = environment("cpu")
    assert (made["CUDA_VISIBLE_DEVICES"], made.get("CUDA_LAUNCH_BLOCKING")) == ("", None)


def test_worker_for_a_gpu_sees_what_there_is_and_launches_a_kernel_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    made = environment("cuda")
    assert (made["CUDA_VISIBLE_DEVICES"], made["CUDA_LAUNCH_BLOCKING"]) == ("3", "1")
