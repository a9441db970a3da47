"""`seamripper replay`, `shrink` and `compare`: what they hand on, print and exit with; what they run is replaced."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz.__main__ import main
from fuzz.comparison import Cell, CompareResult, Row
from fuzz.confirm import Confirmed
from fuzz.finding import Finding, Signature, Verdict
from fuzz.program import Decode, Extend, Program, parse
from fuzz.program import Row as ExtendRow
from fuzz.revisions import ReplayResult, Rig, ShrinkResult
from fuzz.verbs import revisits
from stubs.world import World
from tests.fuzz.mistake import mistake

PROGRAM = Program(World(), (Extend((ExtendRow(0, 3),)), Decode((0,))))


def replayed(path: Path, state: str) -> ReplayResult:
    finding = Finding(Verdict.BUG, Signature("contract", "E", "A.b"), "A lacks b", "", 1, "decode")
    k = 3 if state == "bug" else 0
    return ReplayResult(path, Cell(str(path), "pypi:1", state, k, 3, "why"), "contract/E/A.b", finding if k else None)


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (["clean"], 0),
        (["bug"], 1),
        (["infra"], 125),
        (["stub_gap"], 125),
        (["unsupported"], 125),
        (["clean", "infra"], 125),
        (["infra", "bug", "clean"], 1),
    ],
)
def test_replay_exits_by_the_worst(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, states: list[str], status: int
) -> None:
    for number, _ in enumerate(states):
        (tmp_path / f"{number}.py").touch()
    monkeypatch.setattr(
        revisits.revisions, "replay_all", lambda paths, *rest: [replayed(p, states[int(p.stem)]) for p in paths]
    )
    assert main(["replay", str(tmp_path)]) == status


def test_replay_hands_its_options_on(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    seen: list[Any] = []

    def replay_all(paths: list[Path], target: str | None, times: int, rig: Rig, tell: object) -> list[ReplayResult]:
        seen.extend([paths, target, times, rig])
        return [replayed(paths[0], "clean")]

    monkeypatch.setattr(revisits.revisions, "replay_all", replay_all)
    main(["replay", str(saved), "--target", "pypi:1", "--times", "7"])
    assert seen == [[saved], "pypi:1", 7, Rig(sys.executable)]


def test_replay_json(monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(revisits.revisions, "replay_all", lambda paths, *rest: [replayed(paths[0], "bug")])
    assert main(["replay", str(saved), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit_code"] == 1
    assert answer["repros"][0]["finding"]["title"] == "A lacks b"


def test_a_folder_without_scripts_is_no_clean_replay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = f"no repro scripts in {tmp_path}; expected *.py files that `run` saved"
    assert mistake(capsys, "replay", str(tmp_path)) == line


def shrunk(path: Path, confirmed: Confirmed | None) -> ShrinkResult:
    return ShrinkResult(path, "pypi:1", PROGRAM, confirmed, "the bug does not show here: why", "9.1")


SMALLER = Program(World(), (Extend((ExtendRow(0, 1),)),))
SHRUNK = Confirmed(SMALLER, Finding(Verdict.BUG, Signature("contract", "E", "A.b"), "", "", 0, "extend"), 3, 3)


def test_shrink_prints_the_script_alone(
    monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(revisits.revisions, "shrink_path", lambda path, *rest: shrunk(path, SHRUNK))
    monkeypatch.setattr(revisits.answers, "script_of", lambda result: "the script\n")
    assert main(["shrink", str(saved)]) == 0
    out, err = capsys.readouterr()
    assert out == "the script\n"
    assert err == "2 ops before, 1 now\n"


def test_shrink_prints_the_program_where_no_script_can_show_it(
    monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(revisits.revisions, "shrink_path", lambda path, *rest: shrunk(path, SHRUNK))
    assert main(["shrink", str(saved)]) == 0
    assert parse(capsys.readouterr().out) == SMALLER


def test_shrink_says_why_it_could_not(
    monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(revisits.revisions, "shrink_path", lambda path, *rest: shrunk(path, None))
    assert main(["shrink", str(saved)]) == 125
    assert capsys.readouterr().err == f"seamripper: {saved}: the bug does not show here: why\n"


COMPARED = CompareResult(
    ("pypi:1", "pypi:2"),
    (
        Row(
            "repros/a.py",
            "contract/E/A.b",
            (Cell("repros/a.py", "pypi:1", "bug", 3, 3), Cell("repros/a.py", "pypi:2", "fixed", 0, 3)),
        ),
        Row(
            "repros/b.py",
            "contract/E/B.b",
            (Cell("repros/b.py", "pypi:1", "clean", 0, 3), Cell("repros/b.py", "pypi:2", "infra", 0, 0, "no import")),
        ),
    ),
)


def test_compare_prints_the_table_and_the_reasons(
    monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(revisits.revisions, "compare", lambda *given: seen.extend(given) or COMPARED)
    monkeypatch.setenv("SEAMRIPPER_CACHE", "/cache")
    assert main(["compare", str(saved), "--targets", "pypi:1", "pypi:2", "--times", "2", "--workers", "3"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["repro", "pypi:1", "pypi:2", "introduced", "in", "fixed", "in"],
        ["a.py", "bug", "3/3", "≥26", "%", "fixed", "0/3", "≤74", "%", "–", "pypi:2"],
        ["b.py", "clean", "0/3", "≤74", "%", "infra", "0/0", "–", "–"],
        ["pypi:2:", "infra:", "no", "import"],
    ]
    rig = Rig(sys.executable, results=Path("/cache/results"))
    assert seen[:5] == [(saved,), ("pypi:1", "pypi:2"), 2, rig, 3]


def test_compare_writes_its_table(
    monkeypatch: pytest.MonkeyPatch, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(revisits.revisions, "compare", lambda *given: COMPARED)
    out = tmp_path / "o"
    main(["compare", str(saved), "--targets", "pypi:1", "pypi:2", "--out", str(out), "--json"])
    assert json.loads(capsys.readouterr().out)["rows"][0]["fixed_in"] == "pypi:2"
    assert (out / "compare.csv").read_text().splitlines()[1] == "repros/a.py,bug 3/3,fixed 0/3,fixed in 2"
