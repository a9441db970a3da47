"""A comparison and a bisection as tables, Markdown and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fuzz.bisection import BisectResult
from fuzz.comparison import Cell, CompareResult, Cost, Row, in_order
from reports.bisection import bisection_steps, write_bisection
from reports.comparison import comparison_cells, comparison_matrix, history, write_comparison
from tests.reports.page import Page

TARGETS = ("pypi:1.0", "pypi:1.1", "pypi:1.2", "pypi:1.3")


def row(repro: str, signature: str, *cells: tuple[str, int, int, str]) -> Row:
    made = [
        Cell(repro, target, state, k, n, detail, target.removeprefix("pypi:"))
        for target, (state, k, n, detail) in zip(TARGETS, cells, strict=True)
    ]
    return Row(repro, signature, in_order(made))


CLEAN, BUG, RARE = ("clean", 0, 3, ""), ("bug", 3, 3, "a/B/c"), ("bug", 6, 20, "a/B/c")
GAP, REFUSED, OTHER = ("stub_gap", 0, 3, "lacks <x> | y"), ("unsupported", 0, 3, "page size"), ("other", 3, 3, "a/B/d")
INFRA = ("infra", 0, 0, "no such release")
ROWS = (
    row("repros/x.py", "contract/KeyError/F.g", CLEAN, BUG, CLEAN, CLEAN),
    row("repros/y.py", "numeric/wrong|output/H", RARE, RARE, CLEAN, BUG),
    row("repros/z.py", "", GAP, REFUSED, OTHER, INFRA),
)


BOUNDS = {(0, 3): (0.0, 0.71), (3, 3): (0.29, 1.0), (6, 20): (0.12, 0.54), (0, 0): (None, None)}


def compared(*rows: Row) -> dict[str, Any]:
    comparison = CompareResult(TARGETS, rows, (Cost("pypi:1.0", 12.5, 3.0, 9, 2),)).to_json()
    for cell in (cell for row in comparison["rows"] for cell in row["cells"]):
        cell["low"], cell["high"] = BOUNDS[cell["k"], cell["n"]]
    return comparison


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compare") / "new"
    paths = write_comparison(out, compared(*ROWS))
    assert [path.name for path in paths] == ["compare.md", "compare.html", "compare.csv", "cells.csv"]
    return out


def test_matrix_reads_state_and_runs_and_the_history() -> None:
    matrix = comparison_matrix(compared(*ROWS[:2]))
    assert list(matrix.columns) == ["repro", *TARGETS, "history"]
    assert matrix.values.tolist() == [
        ["repros/x.py", "clean 0/3", "bug 3/3", "fixed 0/3", "fixed 0/3", "introduced in 1.1, fixed in 1.2"],
        ["repros/y.py", "bug 6/20", "bug 6/20", "fixed 0/3", "bug 3/3", "fixed in 1.2, back again in 1.3, still there"],
    ]


def test_the_same_repro_twice_is_two_rows() -> None:
    assert len(comparison_matrix(compared(ROWS[0], ROWS[0]))) == 2


def test_cells_have_bounds_and_types() -> None:
    cells = comparison_cells(compared(*ROWS))
    assert len(cells) == 12
    rare = cells.iloc[4]
    assert (rare["signature"], rare["target"], rare["k"], rare["n"]) == ("numeric/wrong|output/H", "pypi:1.0", 6, 20)
    assert (rare["low"], rare["high"]) == (0.12, 0.54)
    assert cells["low"].isna().tolist() == [False] * 11 + [True]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([CLEAN, BUG, BUG, BUG], "introduced in 1.1, still there"),
        ([CLEAN, GAP, BUG, CLEAN], "introduced in 1.1..1.2, fixed in 1.3"),
        ([BUG, BUG, CLEAN, INFRA], "fixed in 1.2"),
        ([BUG, BUG, BUG, BUG], "shows on each"),
        ([BUG, BUG, INFRA, BUG], "shows on each that can tell"),
        ([CLEAN, CLEAN, INFRA, CLEAN], "shows on none"),
        ([INFRA, GAP, OTHER, REFUSED], "cannot tell"),
    ],
)
def test_history(cells: list[tuple[str, int, int, str]], words: str) -> None:
    assert history(row("a.py", "s", *cells).to_json()) == words


def test_markdown(written: Path) -> None:
    assert (written / "compare.md").read_text() == (
        "**1 of 3 got worse**\n"
        "\n"
        "| fault | 1.0 | 1.1 | 1.2 | 1.3 | history |\n"
        "| --- | :-: | :-: | :-: | :-: | --- |\n"
        "| `contract/KeyError/F.g` | ✓ | ✗ | ✓ | ✓ | introduced in 1.1, fixed in 1.2 |\n"
        "| `numeric/wrong\\|output/H` | ✗ 6/20 | ✗ 6/20 | ✓ | ✗ | fixed in 1.2, back again in 1.3, still there |\n"
        "| `z` | ? | ∅ | ≠ | ? | cannot tell |\n"
        "\n"
        "✗ shows (k/n: in k of n runs only); ✓ every run ended without a finding; ≠ another fault comes first; "
        "∅ SGLang refuses it; ? cannot tell.\n"
        "\n"
        "- stub_gap on `pypi:1.0`: lacks \\<x\\> \\| y\n"
        "- unsupported on `pypi:1.1`: page size\n"
        "- other on `pypi:1.2`: a/B/d\n"
        "- infra on `pypi:1.3`: no such release\n"
    )


def test_names_keep_what_tells_the_targets_apart(tmp_path: Path) -> None:
    cells = [Cell("a.py", target, "clean", 0, 3) for target in ("git:/s/x@v1", "git:/s/x@v2")]
    result = CompareResult(("git:/s/x@v1", "git:/s/x@v2"), (Row("a.py", "s", tuple(cells)),))
    markdown, *_ = write_comparison(tmp_path, result.to_json())
    assert "| fault | v1 | v2 | history |" in markdown.read_text()


def test_a_fix_is_in_the_headline(tmp_path: Path) -> None:
    markdown, *_ = write_comparison(tmp_path, compared(row("a.py", "s", BUG, BUG, CLEAN, CLEAN)))
    assert markdown.read_text().startswith("**Nothing got worse, 1 fixed**\n")


def test_reasons_that_differ_in_an_address_alone_are_one(tmp_path: Path) -> None:
    refused = [("unsupported", 0, 3, f"no <function f at 0x7f{number}a>  {'x' * 200}") for number in range(4)]
    markdown, *_ = write_comparison(tmp_path, compared(row("a.py", "s", *refused)))
    (note,) = [line for line in markdown.read_text().splitlines() if line.startswith("- ")]
    assert note.startswith("- unsupported on `pypi:1.0`, `pypi:1.1`, `pypi:1.2`, `pypi:1.3`: no \\<function f\\> xxx")
    assert note.endswith("x…")


def test_page_loads_nothing_and_escapes(written: Path) -> None:
    page = Page((written / "compare.html").read_text())
    assert page.loads_nothing
    assert "x" not in page.tags
    assert "lacks <x> | y" in page.texts


def test_page_says_state_runs_and_bounds_in_words(written: Path) -> None:
    page = Page((written / "compare.html").read_text())
    assert "g introduced in 1.1, fixed in 1.2 clean 0/3 ≤ 71 % bug 3/3 ≥ 29 % fixed 0/3 ≤ 71 %" in page.text
    assert "bug 6/20 12–54 %" in page.text
    titles = [value for name, value in page.attributes if name == "title"]
    assert titles[0] == "pypi:1.0: clean, 0 of 3 runs. "


def test_page_says_how_to_run_it_again_and_what_it_took(written: Path) -> None:
    text = Page((written / "compare.html").read_text()).text
    assert "seamripper replay repros/x.py --target pypi:1.3" in text
    assert "pypi:1.0 12 s 3.0 s 9 2" in text


def test_csv(written: Path) -> None:
    matrix, cells = ((written / name).read_text().splitlines() for name in ("compare.csv", "cells.csv"))
    assert matrix[0] == "repro,pypi:1.0,pypi:1.1,pypi:1.2,pypi:1.3,history"
    assert matrix[1] == 'repros/x.py,clean 0/3,bug 3/3,fixed 0/3,fixed 0/3,"introduced in 1.1, fixed in 1.2"'
    assert cells[0] == "repro,signature,target,sglang_version,state,k,n,low,high,cached,detail"
    assert cells[12] == "repros/z.py,,pypi:1.3,1.3,infra,0,0,,,0,no such release"


BISECTION = BisectResult(
    "repros/x.py",
    "contract/KeyError/F.g",
    TARGETS,
    (
        Cell("repros/x.py", "pypi:1.0", "clean", 0, 3, "every run ended", "1.0"),
        Cell("repros/x.py", "pypi:1.1", "infra", 0, 0, "no <wheel>"),
        Cell("repros/x.py", "pypi:1.2", "bug", 3, 3, "contract/KeyError/F.g", "1.2"),
    ),
    {},
).to_json()


def test_bisection_as_markdown(tmp_path: Path) -> None:
    markdown, csv = write_bisection(tmp_path / "new", BISECTION)
    assert markdown.read_text() == (
        "`contract/KeyError/F.g`: **introduced in one of pypi:1.1 .. pypi:1.2 (cannot tell: infra: no \\<wheel\\>); "
        "not fixed in pypi:1.2**\n"
        "\n"
        "| tried (3 of 4) | | shows | |\n"
        "| --- | --- | ---: | --- |\n"
        "| `pypi:1.0` | clean | 0 of 3 |  |\n"
        "| `pypi:1.1` | infra | 0 of 0 | no \\<wheel\\> |\n"
        "| `pypi:1.2` | **bug** | 3 of 3 |  |\n"
        "\n"
        "Repro: `repros/x.py`\n"
    )
    assert len(csv.read_text().splitlines()) == 4


def test_steps_of_a_bisection_are_typed() -> None:
    steps = bisection_steps(BISECTION)
    assert steps["k"].tolist() == [0, 0, 3]
    assert steps["signature"].tolist() == ["contract/KeyError/F.g"] * 3
