"""A contrast as a table, Markdown and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.contrast import contrast_table, write_contrast
from tests.reports.page import Page


def side(shown: int, runs: int) -> dict[str, Any]:
    return {"shown": shown, "runs": runs, "blocked": 0, "reason": ""}


def difference(state: str, signature: str, programs: tuple[int, int], runs: tuple[int, int, int], **more: str) -> Any:
    before, after, number = runs
    plain = {"title": "K fails <here>", "pair": "triton:fa3", "mode": "decode", "detail": "", "script": ""}
    return {
        **plain,
        "state": state,
        "signature": signature,
        "programs": {"baseline": programs[0], "target": programs[1]},
        "baseline": side(before, number),
        "target": side(after, number),
        "program": '{"seamripper":1}\n',
        **more,
    }


RESULT: dict[str, Any] = {
    "exit_code": 1,
    "baseline": "pypi:1.0",
    "target": "path:/my sglang",
    "versions": {"baseline": "1.0", "target": "1.1"},
    "new": 1,
    "uncertain": 0,
    "gone": 1,
    "unchanged": 1,
    "differences": [
        difference("new", "a/B/c|d", (0, 4), (0, 5, 5), script="repros/x.py", detail="the baseline refuses"),
        difference("gone", "a/B/e", (3, 0), (5, 0, 5)),
        difference("unchanged", "a/B/f", (2, 2), (0, 0, 0)),
    ],
    "programs": 12,
    "steps": {"baseline": 60, "target": 1_200},
    "verdicts": {"baseline": {"ok": 9, "bug": 3}, "target": {"ok": 8, "bug": 4}},
    "pairs": ["triton:fa3"],
    "pairs_apart": {"triton:x": "runs on the target alone"},
    "out": "o",
    "command": "seamripper contrast --baseline pypi:1.0 --target 'path:/my sglang' --seed 0",
    "interrupted": False,
    "reason": "",
}
QUIET = {**RESULT, "exit_code": 0, "new": 0, "differences": RESULT["differences"][1:]}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("contrast") / "new"
    assert [path.name for path in write_contrast(out, RESULT)] == ["contrast.md", "contrast.csv", "contrast.html"]
    return out


def test_table() -> None:
    table = contrast_table(RESULT)
    assert table.dtypes["target_k"] == "int64"
    columns = ["state", "signature", "baseline_programs", "target_programs", "baseline_k", "baseline_n", "target_k"]
    assert table[columns].values.tolist() == [
        ["new", "a/B/c|d", 0, 4, 0, 5, 5],
        ["gone", "a/B/e", 3, 0, 5, 5, 0],
        ["unchanged", "a/B/f", 2, 2, 0, 0, 0],
    ]


def test_no_difference_is_an_empty_table() -> None:
    assert len(contrast_table({**RESULT, "differences": []})) == 0


def test_markdown(written: Path) -> None:
    assert (written / "contrast.md").read_text() == (
        "**1 new fault**: `path:/my sglang` (1.1) against `pypi:1.0` (1.0), 12 programs on both.\n"
        "\n"
        "| | fault | pair | step | programs | run again |\n"
        "| --- | --- | --- | --- | ---: | ---: |\n"
        "| **new** | `a/B/c\\|d`<br>the baseline refuses | triton:fa3 | decode | 0 → 4 | 0 of 5 → 5 of 5 |\n"
        "| gone | `a/B/e` | triton:fa3 | decode | 3 → 0 | 5 of 5 → 0 of 5 |\n"
        "| unchanged | `a/B/f` | triton:fa3 | decode | 2 → 2 | – |\n"
        "\n"
        "Baseline → target. *programs*: how many of the campaign's showed it. "
        "*run again*: in how many runs of one program it showed.\n"
        "\n"
        "- `a/B/c\\|d`: `seamripper compare repros/x.py --targets pypi:1.0 'path:/my sglang'`\n"
        "\n"
        "Left out:\n"
        "- `triton:x`: runs on the target alone\n"
        "\n"
        "Again: `seamripper contrast --baseline pypi:1.0 --target 'path:/my sglang' --seed 0`\n"
    )


@pytest.mark.parametrize(
    ("result", "headline"),
    [
        (QUIET, "Nothing new"),
        ({**RESULT, "new": 2}, "2 new faults"),
        ({**QUIET, "exit_code": 3, "reason": "no pair"}, "Could not run"),
    ],
)
def test_headline(tmp_path: Path, result: dict[str, Any], headline: str) -> None:
    write_contrast(tmp_path, result)
    assert (tmp_path / "contrast.md").read_text().startswith(f"**{headline}**: ")
    assert f"<h1>{headline}</h1>" in (tmp_path / "contrast.html").read_text()


def test_page(written: Path) -> None:
    page = Page((written / "contrast.html").read_text())
    assert page.loads_nothing
    assert "here" not in page.tags
    assert "K fails <here>" in page.texts
    assert "seamripper compare repros/x.py --targets pypi:1.0 'path:/my sglang'" in page.texts
    assert "1.0 (the baseline, 60 steps) and 1.1 (the target, 1,200 steps)." in page.text


def test_csv(written: Path) -> None:
    lines = (written / "contrast.csv").read_text().splitlines()
    assert lines[2] == "gone,a/B/e,K fails <here>,triton:fa3,decode,3,5,5,0,0,5,,"
