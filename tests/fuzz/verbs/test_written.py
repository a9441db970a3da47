"""What `seamripper compare` and `seamripper bisect` write beside what they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.__main__ import main
from fuzz.bisection import BisectResult
from fuzz.comparison import Cell, CompareResult, Row
from fuzz.verbs import bisects, revisits

CELLS = (Cell("repros/a.py", "pypi:1", "clean", 0, 3, "", "1.0"), Cell("repros/a.py", "pypi:2", "bug", 3, 3, "", "2.0"))


def test_compare_notes_what_is_to_be_expected(monkeypatch: pytest.MonkeyPatch, saved: Path, tmp_path: Path) -> None:
    result = CompareResult(("pypi:1", "pypi:2"), (Row("repros/a.py", "contract/E/A.b", CELLS),))
    monkeypatch.setattr(revisits.revisions, "compare", lambda *given: result)
    file = tmp_path / "expected.toml"
    assert main(["compare", str(saved), "--targets", "pypi:1", "pypi:2", "--write-expected", str(file)]) == 1
    assert '[a]\n"1.0" = "clean 0/3"\n"2.0" = "bug 3/3"\n' in file.read_text()


def test_a_file_that_cannot_be_written_over_is_the_users_mistake(
    monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(revisits.revisions, "compare", lambda *given: CompareResult(("pypi:1",), ()))
    file = saved.with_name("expected.toml")
    file.write_text("[a\n")
    assert main(["compare", str(saved), "--targets", "pypi:1", "--write-expected", str(file)]) == 2
    assert f"{file} is no TOML" in capsys.readouterr().err


def test_bisect_writes_its_answer(monkeypatch: pytest.MonkeyPatch, saved: Path, tmp_path: Path) -> None:
    result = BisectResult("repros/a.py", "contract/E/A.b", ("pypi:1", "pypi:2"), CELLS, {})
    monkeypatch.setattr(bisects.revisions, "bisect_releases", lambda *given: result)
    assert main(["bisect", str(saved), "--releases", "1..2", "--out", str(tmp_path / "o")]) == 0
    assert (tmp_path / "o" / "bisect.md").read_text().startswith("`contract/E/A.b`: **introduced in pypi:2; ")
