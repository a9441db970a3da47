"""`seamripper bisect`: what it hands on, prints and refuses; the search itself is replaced."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz.__main__ import main
from fuzz.bisection import BisectResult
from fuzz.comparison import Cell
from fuzz.revisions import Rig
from fuzz.verbs import revisits
from tests.fuzz.mistake import mistake


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["--repo", "."],
        ["--repo", ".", "--good", "a"],
        ["--repo", ".", "--bad", "a"],
        ["--releases", "1..2", "--good", "a"],
        ["--releases", "1..2", "--repo", ".", "--good", "a", "--bad", "b"],
    ],
)
def test_bisect_searches_releases_or_commits(saved: Path, given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = "expected either --releases FIRST..LAST, or --repo DIR with --good REV and --bad REV"
    assert mistake(capsys, "bisect", str(saved), *given) == f"{line}; see seamripper bisect --help"


def test_bisect_takes_no_revision_for_good_and_bad(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = mistake(capsys, "bisect", str(saved), "--repo", ".", "--good", "a", "b", "--bad", "b")
    assert said == "b is given as good and as bad; see seamripper bisect --help"


def test_bisect_prints_what_it_tried_and_what_came_of_it(
    monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []
    cells = (Cell("a.py", "pypi:1", "clean", 0, 7), Cell("a.py", "pypi:2", "bug", 3, 3))
    result = BisectResult("a.py", "contract/E/A.b", ("pypi:1", "pypi:2"), cells, {})
    monkeypatch.setattr(revisits.revisions, "bisect_releases", lambda *given: seen.extend(given) or result)
    assert main(["bisect", str(saved), "--releases", "1..2", "--times", "2", "--workers", "3", "--no-cache"]) == 0
    assert seen[:5] == [saved, "1..2", 2, Rig(sys.executable), 3]
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["introduced in pypi:2", "not fixed in pypi:2"]


def test_bisect_hands_all_revisions_on(monkeypatch: pytest.MonkeyPatch, saved: Path, tmp_path: Path) -> None:
    seen: list[Any] = []
    result = BisectResult("a.py", "contract/E/A.b", ("r0",), (), {}, "why")
    monkeypatch.setattr(revisits.revisions, "bisect_commits", lambda *given: seen.extend(given) or result)
    given = ["--repo", str(tmp_path), "--good", "v1", "v3", "--bad", "v2", "--no-cache"]
    assert main(["bisect", str(saved), *given]) == 125
    assert seen[:6] == [saved, tmp_path, ("v1", "v3"), ("v2",), 3, Rig(sys.executable)]
