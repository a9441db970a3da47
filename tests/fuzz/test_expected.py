"""What is expected of saved repros: the file, and a run set against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.comparison import Cell
from fuzz.expected import Expected, judge, read_expected, write_expected
from fuzz.program import ProgramError

TEXT = """\
# a remark of mine
[a-b]
"0.5.15" = "clean 0/3"
"0.5.16" = "bug 3/3" # see the issue
"0.5.17" = "other contract/TypeError/f g"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "expected.toml"
    path.write_text(TEXT)
    return path


def cell(
    state: str, k: int = 0, n: int = 3, detail: str = "why", version: str = "0.5.16", repro: str = "r/a-b.py"
) -> Cell:
    return Cell(repro, f"pypi:{version}", state, k, n, detail, version)


def test_read(file: Path) -> None:
    expectations = read_expected(file)
    assert expectations.releases("a-b") == ("0.5.15", "0.5.16", "0.5.17")
    assert expectations.get("a-b", "0.5.16") == Expected("bug", 3, 3)
    assert expectations.get("a-b", "0.5.17") == Expected("other", detail="contract/TypeError/f g")
    assert expectations.get("a-b", "0.5.18") is None
    assert expectations.get("c", "0.5.16") is None


def test_nothing_is_expected_where_there_is_no_file(tmp_path: Path) -> None:
    assert read_expected(tmp_path / "absent.toml").releases("a-b") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a\n", "is no TOML"),
        ("a = 1\n", "a is no table; expected one a script"),
        ('[a]\n"0.5.16" = "broken 3/3"\n', "a, 0.5.16: 'broken 3/3'; expected one of bug, other, clean, unsupported"),
        ('[a]\n"0.5.16" = "infra"\n', "a, 0.5.16: 'infra'; expected one of"),
        ('[a]\n"0.5.16" = 3\n', "a, 0.5.16: '3'; expected one of"),
    ],
)
def test_a_file_that_is_none_of_ours(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "expected.toml").write_text(text)
    with pytest.raises(ProgramError, match=message) as error:
        read_expected(tmp_path / "expected.toml")
    assert str(error.value).startswith(str(tmp_path / "expected.toml"))


def test_writing_keeps_the_rest_and_its_remarks(file: Path) -> None:
    write_expected(
        file, [cell("bug", 2, version="0.5.18"), cell("fixed", version="0.5.17"), cell("clean", repro="c.py")]
    )
    assert file.read_text() == (
        "# a remark of mine\n"
        "[a-b]\n"
        '"0.5.15" = "clean 0/3"\n'
        '"0.5.16" = "bug 3/3" # see the issue\n'
        '"0.5.17" = "clean 0/3"\n'
        '"0.5.18" = "bug 2/3"\n'
        "\n"
        "[c]\n"
        '"0.5.16" = "clean 0/3"\n'
    )


def test_only_knowledge_is_written(tmp_path: Path) -> None:
    path = tmp_path / "expected.toml"
    states = ["infra", "stub_gap", "unsure", "unsupported", "other"]
    write_expected(path, [cell(state, 0, 3, "a/b/c", version=f"9.{i}") for i, state in enumerate(states)])
    expectations = read_expected(path)
    assert expectations.releases("a-b") == ("9.3", "9.4")
    assert expectations.get("a-b", "9.3") == Expected("unsupported")
    assert expectations.get("a-b", "9.4") == Expected("other", 0, 3, "a/b/c")


def test_a_file_that_is_none_of_ours_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "expected.toml"
    path.write_text("[a\n")
    with pytest.raises(ProgramError):
        write_expected(path, [cell("bug", 3)])
    assert path.read_text() == "[a\n"


BUG, CLEAN, REFUSED = Expected("bug", 3, 3), Expected("clean", 0, 3), Expected("unsupported")
OTHER = Expected("other", 3, 3, "a/b/c")


@pytest.mark.parametrize(
    ("state", "detail", "expected", "outcome"),
    [
        ("bug", "", BUG, "xfailed"),
        ("bug", "", Expected("bug", 1, 20), "xfailed"),
        ("bug", "", CLEAN, "failed"),
        ("bug", "", REFUSED, "failed"),
        ("bug", "", None, "failed"),
        ("clean", "", CLEAN, "passed"),
        ("clean", "", None, "passed"),
        ("clean", "", BUG, "failed"),
        ("clean", "", REFUSED, "failed"),
        ("unsupported", "why", REFUSED, "skipped"),
        ("unsupported", "why", None, "skipped"),
        ("unsupported", "why", BUG, "failed"),
        ("unsupported", "why", CLEAN, "failed"),
        ("other", "a/b/c", OTHER, "xfailed"),
        ("other", "a/b/d", OTHER, "failed"),
        ("other", "a/b/c", None, "failed"),
        ("other", "a/b/c", BUG, "failed"),
        ("infra", "why", BUG, "error"),
        ("infra", "why", None, "error"),
        ("stub_gap", "why", CLEAN, "error"),
        ("unsure", "why", CLEAN, "error"),
    ],
)
def test_judge(state: str, detail: str, expected: Expected | None, outcome: str) -> None:
    assert judge(cell(state, 3 if state in ("bug", "other") else 0, detail=detail), expected)[0] == outcome


@pytest.mark.parametrize(
    ("given", "expected", "why"),
    [
        (cell("bug", 3), CLEAN, "bug 3/3 on pypi:0.5.16 (SGLang 0.5.16); expected clean 0/3: why"),
        (cell("bug", 3), None, "shows on pypi:0.5.16 (SGLang 0.5.16) in 3 of 3 runs, which is not known to have it"),
        (cell("clean", detail="all runs"), BUG, "clean 0/3 on pypi:0.5.16 (SGLang 0.5.16); expected bug 3/3: all runs"),
        (cell("infra", version=""), BUG, "infra on pypi:: why"),
    ],
)
def test_judge_says_why(given: Cell, expected: Expected | None, why: str) -> None:
    assert judge(given, expected)[1] == why
