"""A program under compute-sanitizer, for which a script stands in: it runs the command behind its options."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fuzz.__main__ import main
from fuzz.program import Decode, Extend, Program, Row
from fuzz.revisions import ReplayResult, Rig, replay_sanitized
from fuzz.sanitizer import SanitizerError
from stubs.world import World
from tests.fuzz.conftest import CLEAN, FAKE_EXECUTOR, MakeTarget
from tests.fuzz.test_sanitizer_report import CLEAN as CLEAN_REPORT
from tests.fuzz.test_sanitizer_report import WRITE

PROGRAM = Program(World(), (Extend((Row(0, 3),)), Decode((0,))))
SIGNATURE = "contract/KeyError/step"
BUG = "def step(kind, seed):\n    if kind == 'decode':\n        raise KeyError('x')\n"
SANITIZED = "bounds/sanitizer_invalid_write/_fwd_grouped_kernel_stage1"

# Runs the command and writes a report where it is told to; its arguments go to a file beside it.
TOOL = """\
#!/bin/sh
echo "$@" > "$0.arguments"
while [ "$1" != "{python}" ]; do
    [ "$1" = --log-file ] && log="$2"
    shift
done
{before}
"$@" || exit $?
cp "$0.report" "$log"
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """compute-sanitizer on PATH; its report is a file beside it."""
    path = tmp_path / "bin" / "compute-sanitizer"
    path.parent.mkdir()
    write_tool(path)
    Path(f"{path}.report").write_text(WRITE)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    return path


def write_tool(path: Path, before: str = ":") -> None:
    path.write_text(TOOL.format(python=sys.executable, before=before))
    path.chmod(0o755)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "a.py"
    path.write_text(f"PROGRAM = {PROGRAM.text!r}\nSIGNATURE = {SIGNATURE!r}\n")
    return path


def replayed(script: Path, target: Path, executor: str = FAKE_EXECUTOR) -> ReplayResult:
    rig = Rig(sys.executable, script.parent / "logs", program_seconds=2, executor=executor)
    (result,) = replay_sanitized([script], f"path:{target}", "memcheck", rig)
    return result


def test_report_is_folded_into_the_repros_own_finding(tool: Path, make_target: MakeTarget, script: Path) -> None:
    result = replayed(script, make_target(BUG))
    cell = result.cell
    assert (cell.state, cell.k, cell.n, cell.detail, result.exit_code) == ("bug", 1, 1, SANITIZED, 1)
    assert result.finding is not None
    assert (str(result.finding.signature), result.finding.message) == (SIGNATURE, "'x'")
    assert result.finding.evidence["sanitizer"].startswith("========= Invalid __global__ write of size 4 bytes")


def test_report_alone_shows_too(tool: Path, make_target: MakeTarget, script: Path) -> None:
    result = replayed(script, make_target(CLEAN))
    assert result.finding is not None
    assert (str(result.finding.signature), result.exit_code) == (SANITIZED, 1)


def test_bug_that_the_tool_does_not_see_shows_as_ever(tool: Path, make_target: MakeTarget, script: Path) -> None:
    Path(f"{tool}.report").write_text(CLEAN_REPORT)
    result = replayed(script, make_target(BUG))
    assert (result.cell.state, result.cell.detail, result.exit_code) == ("bug", SIGNATURE, 1)


def test_nothing_shown_and_nothing_reported_is_clean(tool: Path, make_target: MakeTarget, script: Path) -> None:
    Path(f"{tool}.report").write_text(CLEAN_REPORT)
    assert replayed(script, make_target(CLEAN)).exit_code == 0


def test_command_and_surroundings_of_the_worker(tool: Path, make_target: MakeTarget, script: Path) -> None:
    Path(f"{tool}.report").write_text(CLEAN_REPORT)
    names = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_LAUNCH_BLOCKING")
    source = f"import os\ndef step(kind, seed):\n    raise KeyError([os.environ[name] for name in {names}])\n"
    finding = replayed(script, make_target(source)).finding
    assert finding is not None and finding.message == "['1', '1']"
    given = Path(f"{tool}.arguments").read_text()
    assert given.startswith("--tool memcheck --error-exitcode 86 --target-processes all ")
    assert "--device=cuda" in given


@pytest.mark.parametrize(
    ("before", "report", "detail"),
    [
        ("echo 'version mismatch'; exit 3", CLEAN_REPORT, "compute-sanitizer failed with status 3: version mismatch"),
        (":", "========= COMPUTE-SANITIZER\n", "compute-sanitizer failed with status 0: ========= COMPUTE-SANITIZER"),
    ],
)
def test_tool_that_gave_up_tells_nothing(
    tool: Path, make_target: MakeTarget, script: Path, before: str, report: str, detail: str
) -> None:
    write_tool(tool, before)
    Path(f"{tool}.report").write_text(report)
    result = replayed(script, make_target(CLEAN))
    assert (result.cell.state, result.cell.detail, result.exit_code) == ("infra", detail, 125)


def test_target_that_does_not_import_tells_nothing(tool: Path, make_target: MakeTarget, script: Path) -> None:
    result = replayed(script, make_target("raise ImportError('no cutlass')"))
    assert (result.cell.state, result.exit_code) == ("infra", 125)
    assert result.cell.detail == "the worker cannot run the target: ImportError: no cutlass"


def test_without_a_gpu_nothing_can_be_told(
    tool: Path, make_target: MakeTarget, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # wherever this runs
    result = replayed(script, make_target(CLEAN), executor="fuzz.execute")
    assert (result.cell.state, result.exit_code) == ("infra", 125)
    assert "sees no CUDA device; expected one" in result.cell.detail


def test_without_the_tool_one_line_says_so(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert main(["replay", str(script), "--python", sys.executable, "--sanitizer", "memcheck"]) == 125
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("seamripper: no compute-sanitizer on PATH; expected the one of the CUDA toolkit")


def test_without_the_tool_nothing_is_started(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    with pytest.raises(SanitizerError):
        replay_sanitized([script], "path:/absent", "memcheck", Rig(sys.executable))


def test_verb_asks_for_the_tool_and_prints_what_it_saw(
    tool: Path, script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def replay_sanitized(files: list[Path], target: object, asked: str, rig: Rig, tell: object) -> list[ReplayResult]:
        seen.append(asked)
        return []

    monkeypatch.setattr("fuzz.revisions.replay_sanitized", replay_sanitized)
    assert main(["replay", str(script), "--sanitizer", "memcheck"]) == 0
    assert seen == ["memcheck"]
