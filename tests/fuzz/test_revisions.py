"""Repros replayed, compared and shrunk on targets of a few lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.program import Decode, Extend, Idle, Program, ProgramError, Row
from fuzz.revisions import Rig, compare, replay, replay_all, shrink_path
from fuzz.targets import TargetError
from stubs.world import World
from tests.fuzz.conftest import CLEAN, FAKE_EXECUTOR, MakeTarget

PROGRAM = Program(World(), (Extend((Row(0, 3),)), Idle(), Decode((0,))))
SIGNATURE = "contract/KeyError/step"
ON_DECODE = "import os\nclass Gap(Exception): pass\nclass Refusal(Exception): pass\nruns = []\ndef step(kind, seed):\n    if kind == 'decode':\n        {}\n"
BUG = ON_DECODE.format("raise KeyError('x')")
OTHER = ON_DECODE.format("raise TypeError('x')")
GAP = ON_DECODE.format("raise Gap('lacks field')")
REFUSAL = ON_DECODE.format("raise Refusal('page size')")
KILLED = ON_DECODE.format("os.kill(os.getpid(), 9)")
CRASH = ON_DECODE.format("os.abort()")
SOMETIMES = ON_DECODE.format("runs.append(1); [][0 if len(runs) == 2 else slice(0)]")

Specs = Callable[..., list[str]]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(sys.executable, tmp_path / "logs", program_seconds=20, executor=FAKE_EXECUTOR)


@pytest.fixture
def specs(make_target: MakeTarget) -> Specs:
    """``specs(BUG, CLEAN, ...)``: a target spec for each source."""
    return lambda *sources: [
        f"path:{make_target(source, name=f't{number}', version=f'9.{number}')}" for number, source in enumerate(sources)
    ]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return write_script(tmp_path / "repros" / "a.py", SIGNATURE)


def write_script(path: Path, signature: str, found_on: str = "", reliability: str = "20 of 20") -> Path:
    path.parent.mkdir(exist_ok=True)
    doc = f'"""A title\n\nFound on x; seen on x; shown in {reliability} runs; sglang 9.\n"""\n'
    path.write_text(f"{doc}PROGRAM = {PROGRAM.text!r}\nSIGNATURE = {signature!r}\nFOUND_ON = {found_on!r}\n")
    return path


@pytest.mark.parametrize(
    ("source", "state", "k", "exit_code", "detail"),
    [
        (BUG, "bug", 3, 1, SIGNATURE),
        (CLEAN, "clean", 0, 0, "every run was completed without a finding"),
        (OTHER, "other", 3, 125, "contract/TypeError/step"),
        (CRASH, "other", 3, 125, "contract/SIGABRT/step"),
        (GAP, "stub_gap", 0, 125, "Gap at step: lacks field"),
        (REFUSAL, "unsupported", 0, 125, "Refusal at step: page size"),
        (KILLED, "infra", 0, 125, "SIGKILL at process: the process was ended by SIGKILL in the middle of the program"),
    ],
)
def test_replay(
    rig: Rig, specs: Specs, script: Path, source: str, state: str, k: int, exit_code: int, detail: str
) -> None:
    (target,) = specs(source)
    result = replay(script, target, 3, rig)
    cell = result.cell
    assert (cell.state, cell.k, cell.n, cell.detail, result.exit_code) == (state, k, 3, detail, exit_code)
    assert cell.sglang_version == "9.0"


def test_replay_of_a_target_that_does_not_import_cannot_tell(rig: Rig, specs: Specs, script: Path) -> None:
    (target,) = specs("raise ImportError('no cutlass')")
    result = replay(script, target, 3, rig)
    assert (result.cell.state, result.exit_code) == ("infra", 125)
    assert "ImportError: no cutlass" in result.cell.detail


def test_replay_hands_over_the_finding_of_this_time(rig: Rig, specs: Specs, script: Path) -> None:
    finding = replay(script, specs(BUG)[0], 1, rig).finding
    assert finding is not None
    assert (finding.op_index, finding.mode, finding.message) == (2, "decode", "'x'")


def test_bug_that_shows_sometimes_shows(rig: Rig, specs: Specs, tmp_path: Path) -> None:
    script = write_script(tmp_path / "a.py", "contract/IndexError/step")
    result = replay(script, specs(SOMETIMES)[0], 3, rig)
    assert (result.cell.state, result.cell.k, result.cell.n, result.exit_code) == ("bug", 1, 3, 1)


def test_replay_without_a_target_takes_the_one_it_was_found_on(rig: Rig, specs: Specs, tmp_path: Path) -> None:
    (target,) = specs(BUG)
    result = replay(write_script(tmp_path / "a.py", SIGNATURE, target), None, 1, rig)
    assert (result.cell.target, result.exit_code) == (target, 1)


def test_several_replays_share_a_worker_and_keep_their_order(rig: Rig, specs: Specs, tmp_path: Path) -> None:
    (source,) = specs("print('imported')\n" + BUG)
    other = "contract/TypeError/step"
    scripts = [write_script(tmp_path / "b.py", SIGNATURE), write_script(tmp_path / "a.py", other)]
    results = replay_all(scripts, source, 1, rig)
    assert [(result.path.name, result.exit_code) for result in results] == [("b.py", 1), ("a.py", 125)]
    assert (tmp_path / "logs" / "worker-0.log").read_text().count("imported") == 1


def test_any_bug_will_do_where_the_file_names_none(rig: Rig, specs: Specs, tmp_path: Path) -> None:
    path = tmp_path / "program.jsonl"
    path.write_text(PROGRAM.text)
    assert replay(path, specs(OTHER)[0], 1, rig).exit_code == 1


def test_replay_of_a_bad_target(rig: Rig, script: Path) -> None:
    with pytest.raises(TargetError, match="'nonsense' is not understood"):
        replay(script, "nonsense", 1, rig)


def test_compare_names_where_it_came_and_where_it_went(rig: Rig, specs: Specs, script: Path) -> None:
    targets = specs(CLEAN, BUG, CLEAN)
    result = compare([script.parent], targets, 2, rig)
    (row,) = result.rows
    assert [(cell.state, cell.k, cell.n) for cell in row.cells] == [("clean", 0, 2), ("bug", 2, 2), ("fixed", 0, 2)]
    assert (row.introduced_in, row.fixed_in, result.exit_code) == (targets[1], targets[2], 1)


def test_compare_keeps_targets_and_repros_in_order_with_several_jobs(rig: Rig, specs: Specs, tmp_path: Path) -> None:
    scripts = [write_script(tmp_path / "repros" / name, signature) for name, signature in
               (("b.py", SIGNATURE), ("a.py", "contract/TypeError/step"))]  # fmt: skip
    result = compare(scripts, specs(BUG, OTHER), 1, rig, jobs=2)
    states = [[cell.state for cell in row.cells] for row in result.rows]
    assert states == [["bug", "other"], ["other", "bug"]]


def test_target_that_cannot_be_had_costs_its_column_alone(rig: Rig, specs: Specs, script: Path) -> None:
    result = compare([script], [specs(BUG)[0], "path:/no/such/folder"], 1, rig)
    cells = result.rows[0].cells
    assert [cell.state for cell in cells] == ["bug", "infra"]
    assert "/no/such/folder is no folder" in cells[1].detail
    assert result.exit_code == 0


def test_no_target_at_all_is_the_users_error(rig: Rig, script: Path) -> None:
    with pytest.raises(TargetError, match="nonsense"):
        compare([script], ["nonsense", "path:/no/such/folder"], 1, rig)


def test_worker_that_dies_for_good_costs_the_rest_of_its_column(rig: Rig, specs: Specs, tmp_path: Path) -> None:
    # The first repro kills the whole worker, which then cannot import the target again.
    source = (
        "import os\nflag = os.path.join(os.path.dirname(__file__), 'flag')\n"
        "if os.path.exists(flag): raise ImportError('gone')\n"
        "def step(kind, seed):\n    open(flag, 'w').close(); os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)\n"
    )
    scripts = [write_script(tmp_path / name, SIGNATURE) for name in ("a.py", "b.py")]
    result = compare(scripts, specs(source, BUG), 1, rig)
    states = [[cell.state for cell in row.cells] for row in result.rows]
    assert states == [["infra", "bug"], ["infra", "bug"]]
    assert "ImportError: gone" in result.rows[1].cells[0].detail


def test_each_repro_starts_in_a_fresh_process(rig: Rig, specs: Specs, tmp_path: Path) -> None:
    source = "ran = []\ndef step(kind, seed):\n    ran.append(kind)\n    if len(ran) > 3: raise KeyError('x')\n"
    scripts = [write_script(tmp_path / name, SIGNATURE, reliability="100 of 100") for name in ("a.py", "b.py")]
    result = compare(scripts, specs(source), 1, rig)
    assert [row.cells[0].state for row in result.rows] == ["clean", "clean"]


def test_folder_without_scripts(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="no repro scripts in"):
        compare([tmp_path], ["installed"], 1, rig)


def test_shrink(rig: Rig, specs: Specs, script: Path) -> None:
    result = shrink_path(script, specs(BUG)[0], rig)
    assert result.confirmed is not None
    assert [op.kind for op in result.confirmed.program.ops] == ["extend", "decode"]
    assert (result.confirmed.shown, result.confirmed.runs, result.exit_code) == (10, 10, 0)


def test_nothing_to_shrink_says_why(rig: Rig, specs: Specs, script: Path) -> None:
    result = shrink_path(script, specs(OTHER)[0], rig)
    assert (result.confirmed, result.exit_code) == (None, 125)
    assert result.reason == "the bug does not show here: contract/TypeError/step"


def test_logs_are_removed_when_no_folder_was_given(
    specs: Specs, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert replay(script, specs(BUG)[0], 1, Rig(executor=FAKE_EXECUTOR)).exit_code == 1
    assert list(folder.iterdir()) == []
