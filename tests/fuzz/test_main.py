"""The command line: a user's mistake is one line and status 2, and every error has its exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.__main__ import main
from fuzz.campaign import CampaignError, CampaignOptions, CampaignResult, Progress
from fuzz.process import WorkerError
from fuzz.program import ProgramError
from fuzz.store import StoreError
from fuzz.targets import TargetError
from fuzz.verbs import campaigns, revisits
from tests.fuzz.mistake import mistake


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["frob"], "No such command 'frob'; see seamripper --help"),
        (["run", "surplus"], "Got unexpected extra argument (surplus); see seamripper run --help"),
        (
            ["run", "--seconds", "0"],
            "Invalid value for '--seconds': 0.0 is not in the range x>0; see seamripper run --help",
        ),
        (
            ["run", "--programs", "-1"],
            "Invalid value for '--programs': -1 is not in the range x>=1; see seamripper run --help",
        ),
        (
            ["run", "--pair", "triton:fa3", "triton"],
            (
                "Invalid value for '--pair': 'triton'; expected two backend names, PREFILL:DECODE, "
                "such as triton:torch_native; see seamripper run --help"
            ),
        ),
        (
            ["run", "--runner", "toy"],
            "Invalid value for '--runner': 'toy' is not one of 'fake', 'real'; see seamripper run --help",
        ),
        (
            ["run", "--python", "/absent/python"],
            (
                "Invalid value for '--python': '/absent/python' is no program that can be run; "
                "expected a Python interpreter; see seamripper run --help"
            ),
        ),
        (
            ["replay", "/absent.py"],
            "Invalid value for 'PATH...': Path '/absent.py' does not exist; see seamripper replay --help",
        ),
        (
            ["shrink", "/absent.py"],
            "Invalid value for 'PATH': File '/absent.py' does not exist; see seamripper shrink --help",
        ),
        (["compare", "/"], "Missing option '--targets'; see seamripper compare --help"),
        (
            ["report", "/absent"],
            "Invalid value for 'DIR': Directory '/absent' does not exist; see seamripper report --help",
        ),
    ],
)
def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    assert mistake(capsys, *arguments) == line


@pytest.mark.parametrize("verb", [["run", "--seconds", "5"], ["doctor"], ["audit"]])
def test_a_bad_target_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "target 'frob' is not understood; expected installed, pypi:VERSION, path:DIR or git:DIR@REV"
    assert mistake(capsys, *verb, "--target", "frob") == line


def test_a_bad_release_is_one_line(capsys: pytest.CaptureFixture[str], saved: Path) -> None:
    line = "target 'pypi:latest': 'latest' is no version; expected something like 0.5.16"
    assert mistake(capsys, "replay", str(saved), "--target", "pypi:latest") == line


def test_a_bad_program_file_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    assert mistake(capsys, "replay", str(bad)).startswith(f"{bad}: line 1: ")


def test_a_message_of_several_lines_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(options: CampaignOptions, progress: Progress) -> CampaignResult:
        raise CampaignError("first\n\tsecond.")

    monkeypatch.setattr(campaigns, "run_campaign", refuse)
    assert mistake(capsys, "run") == "first second"


@pytest.mark.parametrize(
    ("error", "verb", "status"),
    [
        (StoreError("full"), "run", 3),
        (WorkerError("dead"), "run", 3),
        (PermissionError(13, "Permission denied", "/x"), "run", 3),
        (KeyboardInterrupt(), "run", 130),
        (WorkerError("dead"), "replay", 125),
        (StoreError("another bisection"), "bisect", 125),
        (RuntimeError("ours"), "replay", 125),
        (RuntimeError("ours"), "run", 3),
        (TargetError("no such release"), "replay", 2),
        (ProgramError("line 1"), "replay", 2),
    ],
)
def test_exit_status_of_errors(
    monkeypatch: pytest.MonkeyPatch, saved: Path, error: BaseException, verb: str, status: int
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(campaigns, "run_campaign", fail)
    monkeypatch.setattr(revisits.revisions, "replay_all", fail)
    monkeypatch.setattr(revisits.revisions, "bisect_releases", fail)
    given = {"replay": [str(saved)], "bisect": [str(saved), "--releases", "1..2"]}
    assert main([verb, *given.get(verb, [])]) == status


def test_our_own_fault_asks_to_be_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(campaigns, "run_campaign", fail)
    main(["run"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == [
        "RuntimeError: ours",
        "seamripper: this is a fault of seamripper itself; please report it with the lines above",
    ]


def test_no_verb_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    listed = [line.split()[0] for line in out[out.index("Commands:") :].splitlines()[1:] if line]
    verbs = "audit bench bisect compare contrast corpus coverage doctor replay report run shrink support"
    assert listed == verbs.split()


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m fuzz run --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["torch", "pandas", "sglang", "matplotlib"])
def test_the_command_line_starts_without(module: str) -> None:
    code = f"import sys, fuzz.__main__; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
