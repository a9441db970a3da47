"""Results kept from one comparison to the next, and what makes them void."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.repro import read_repro
from fuzz.revisions import Rig, compare
from fuzz.revisions.cache import Shelf
from fuzz.revisions.content import own_digest, target_content, versions_of
from fuzz.revisions.sample import Run, Sample
from tests.fuzz.conftest import FAKE_EXECUTOR, MakeTarget
from tests.fuzz.revisions.histories import SOURCES, History, write_script

CLEAN = Run("clean", "every run was completed without a finding")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return write_script(tmp_path / "a.py")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(sys.executable, tmp_path / "logs", 20, FAKE_EXECUTOR, tmp_path / "results")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def shelf(tmp_path: Path, said: list[str]) -> Shelf:
    return Shelf(tmp_path / "results", {"content": "one"}, said.append)


def kept_files(rig: Rig) -> list[Path]:
    assert rig.results is not None
    return sorted(rig.results.rglob("*.json"))


def cached(script: Path, target: str, rig: Rig, times: int = 3) -> tuple[str, int, int]:
    (row,) = compare([script], [target], times, rig).rows
    return row.cells[0].state, row.cells[0].n, row.cells[0].cached


def test_second_run_is_taken_from_the_cache_and_says_so(rig: Rig, script: Path, make_target: MakeTarget) -> None:
    target = f"path:{make_target(SOURCES['b'])}"
    assert cached(script, target, rig) == ("bug", 3, 0)
    (tmp_log,) = rig.out.glob("*.log")  # type: ignore[union-attr]
    size = tmp_log.stat().st_size
    assert cached(script, target, rig) == ("bug", 3, 3)
    assert tmp_log.stat().st_size == size


def test_cost_says_what_was_run_and_what_was_not(rig: Rig, script: Path, make_target: MakeTarget) -> None:
    target = f"path:{make_target(SOURCES['b'])}"
    (first,) = compare([script], [target], 3, rig).costs
    (second,) = compare([script], [target], 3, rig).costs
    assert (first.runs, first.cached, second.runs, second.cached) == (3, 0, 0, 3)
    assert first.import_seconds > 0 == second.import_seconds


def test_without_a_cache_nothing_is_looked_up_or_kept(rig: Rig, script: Path, make_target: MakeTarget) -> None:
    target = f"path:{make_target(SOURCES['b'])}"
    cached(script, target, rig)
    assert cached(script, target, replace(rig, results=None)) == ("bug", 3, 0)


def test_equal_sources_elsewhere_are_the_same_target(rig: Rig, script: Path, make_target: MakeTarget) -> None:
    one, two = (make_target(SOURCES["b"], name=name) for name in ("one", "two"))
    cached(script, f"path:{one}", rig)
    assert cached(script, f"path:{two}", rig) == ("bug", 3, 3)


def test_only_what_is_missing_is_run(rig: Rig, script: Path, make_target: MakeTarget) -> None:
    target = f"path:{make_target(SOURCES['b'])}"
    cached(script, target, rig)
    assert cached(script, target, rig, times=5) == ("bug", 5, 3)


@pytest.mark.parametrize("letter", ["k", "i"])
def test_what_the_machine_spoilt_is_not_kept(rig: Rig, script: Path, make_target: MakeTarget, letter: str) -> None:
    compare([script], [f"path:{make_target(SOURCES[letter])}"], 3, rig)
    assert kept_files(rig) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "sglang" / "__init__.py").write_text("__version__ = '9.1'\ndef step(*a): pass\n"),
        lambda folder: (folder / "sglang" / "more.py").write_text(""),
    ],
)
def test_edited_target_is_run_again(
    rig: Rig, script: Path, make_target: MakeTarget, change: Callable[[Path], object]
) -> None:
    folder = make_target(SOURCES["b"])
    cached(script, f"path:{folder}", rig)
    change(folder)
    assert cached(script, f"path:{folder}", rig)[2] == 0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": 1}', '{"format": 1, "key": {}, "sglang_version": "", "runs": []}', "\x00\xff"],
)
def test_file_that_cannot_be_read_is_ignored_with_a_line(
    rig: Rig, script: Path, make_target: MakeTarget, said: list[str], text: str
) -> None:
    target = f"path:{make_target(SOURCES['b'])}"
    cached(script, target, rig)
    (kept,) = kept_files(rig)
    kept.write_bytes(text.encode("latin-1"))
    (row,) = compare([script], [target], 3, rig, 1, said.append).rows
    assert (row.cells[0].state, row.cells[0].cached) == ("bug", 0)
    (line,) = [line for line in said if str(kept) in line]
    assert "is no result that can be read" in line


@pytest.mark.parametrize("state", ["maybe", "infra"])
def test_runs_of_no_known_state_are_not_believed(shelf: Shelf, script: Path, said: list[str], state: str) -> None:
    repro = read_repro(script)
    shelf.put(repro, Sample((CLEAN,)), "9.1")
    (path,) = shelf.folder.rglob("*.json")
    path.write_text(path.read_text().replace('"clean"', f'"{state}"'))
    assert shelf.get(repro) is None
    assert len(said) == 1


def test_what_it_depends_on_is_told_apart(shelf: Shelf, script: Path, tmp_path: Path) -> None:
    repro = read_repro(script)
    shelf.put(repro, Sample((CLEAN,)), "9.1")
    assert shelf.get(repro) is not None
    assert replace(shelf, about={"content": "two"}).get(repro) is None
    assert shelf.get(read_repro(write_script(tmp_path / "b.py", "contract/TypeError/step"))) is None


def test_cache_that_cannot_be_written_costs_no_result(
    rig: Rig, script: Path, make_target: MakeTarget, said: list[str], tmp_path: Path
) -> None:
    (tmp_path / "results").touch()
    (row,) = compare([script], [f"path:{make_target(SOURCES['b'])}"], 3, rig, 1, said.append).rows
    assert row.cells[0].state == "bug"
    assert any("the result is not kept: cannot write" in line for line in said)


def test_results_are_plain_json_that_names_all_they_depend_on(rig: Rig, script: Path, make_target: MakeTarget) -> None:
    cached(script, f"path:{make_target(SOURCES['b'])}", rig)
    (path,) = kept_files(rig)
    data = json.loads(path.read_text())
    assert data["runs"] == [["bug", "contract/KeyError/step"]] * 3
    assert sorted(data["key"]) == [
        "content",
        "device",
        "executor",
        "program",
        "program_seconds",
        "seamripper",
        "signature",
        "versions",
    ]
    assert sorted(data["key"]["versions"]) == ["numpy", "python", "torch", "transformers", "triton"]
    assert data["key"]["seamripper"] == own_digest()


def test_commits_outside_of_python_have_the_same_content(tmp_path: Path) -> None:
    history = History(tmp_path / "checkout")
    history.add("bnc")
    contents = [target_content(f"git:{history.folder}@{number}", sys.executable) for number in range(3)]
    assert contents[0] == contents[1] != contents[2]


def test_versions_are_those_of_the_interpreter() -> None:
    assert versions_of(sys.executable, "cpu")["python"] == sys.version.split()[0]
