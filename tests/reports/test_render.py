"""The written reports: what stands in them, what is escaped, and that the page asks the network for nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reports.render import breakable, duration, markdown_code, markdown_text, rate, write_reports
from tests.reports.page import Page
from tests.reports.sample import BUG, FINDING, GAP, OK, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reported run with a finding, a stub gap and a broken line."""
    folder = write_run(tmp_path_factory.mktemp("run"), [OK, BUG, GAP], [FINDING])
    about = {"title": "a <night> | out", "command": "seamripper run --seed 7"}
    (folder / "run.json").write_text(json.dumps(about))
    with (folder / "records-0.jsonl").open("a") as records:
        records.write('{"half":')
    write_reports(folder)
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_all_files_are_written(tmp_path: Path) -> None:
    paths = write_reports(write_run(tmp_path, [OK], []))
    assert [path.name for path in paths] == [
        "summary.md",
        "findings.csv",
        "pair_mode.csv",
        "report.html",
        "junit.xml",
    ]
    assert all(path.stat().st_size > 0 for path in paths)


def test_an_empty_folder_says_that_nothing_ran(tmp_path: Path) -> None:
    write_reports(tmp_path)
    assert (tmp_path / "summary.md").read_text().startswith(f"# Nothing ran: {tmp_path.name}\n")
    assert "<h1>Nothing ran</h1>" in (tmp_path / "report.html").read_text()


def test_a_clean_run_says_nothing_new(tmp_path: Path) -> None:
    write_reports(write_run(tmp_path, [OK], []))
    assert (tmp_path / "summary.md").read_text().startswith(f"# Nothing new: {tmp_path.name}\n")


@pytest.mark.parametrize("other", [{"known": True}, {"verdict": "stub_gap"}, {"dismissed": "rounding"}])
def test_what_is_known_or_ours_is_not_new(tmp_path: Path, other: dict[str, object]) -> None:
    write_reports(write_run(tmp_path, [BUG], [{**FINDING, **other}]))
    assert (tmp_path / "summary.md").read_text().startswith(f"# Nothing new: {tmp_path.name}\n")
    assert ElementTree.parse(tmp_path / "junit.xml").getroot().get("failures") == "0"


def test_what_was_dismissed_is_told_with_the_reason(tmp_path: Path) -> None:
    write_reports(write_run(tmp_path, [BUG], [{**FINDING, "dismissed": "rounding: shows in 1 of 8 runs"}]))
    summary, page = (tmp_path / "summary.md").read_text(), (tmp_path / "report.html").read_text()
    row = "| `contract/AttributeError/Wrapper.field` | `triton:fa3` | `verify_chain_prefill` | rounding: shows in 1 of 8 runs | 4 |"
    assert row in summary.splitlines()
    assert "<h2>Dismissed</h2>" in page
    assert "## Findings" not in summary
    assert (tmp_path / "findings.csv").read_text().count("\n") == 1


def test_a_finding_that_was_not_run_again_says_so(tmp_path: Path) -> None:
    write_reports(write_run(tmp_path, [BUG], [{**FINDING, "reliability": [0, 0]}]))
    assert (
        "- not run again: the run ended, or lost its worker, before that; first seen after 20 s"
        in (tmp_path / "summary.md").read_text()
    )


def test_what_else_a_findings_program_shows_is_told(tmp_path: Path) -> None:
    beside = ["bounds/hole/kernel.loc", "state/stray_kv_write/Backend.forward_decode"]
    write_reports(write_run(tmp_path, [BUG], [{**FINDING, "beside": beside}]))
    line = "- its program also shows `bounds/hole/kernel.loc`, `state/stray_kv_write/Backend.forward_decode`"
    lines = (tmp_path / "summary.md").read_text().splitlines()
    assert line in lines
    assert lines[lines.index(line) + 1].startswith("- replay: ")
    page = (tmp_path / "report.html").read_text().replace("<wbr>", "")
    assert "also shows <code>bounds/hole/kernel.loc</code>, <code>state/stray_kv_write" in page


@pytest.mark.parametrize(("count", "links"), [(3, []), (4, ["#finding-1", "#finding-2", "#finding-3", "#finding-4"])])
def test_page_with_many_findings_begins_with_a_list_of_them(tmp_path: Path, count: int, links: list[str]) -> None:
    findings = [
        {**FINDING, "reliability": [3, 3], "signature": f"numeric/nan/Backend{number}", "title": f"t{number}"}
        for number in range(count)
    ]
    write_reports(write_run(tmp_path, [BUG], findings))
    text = (tmp_path / "report.html").read_text()
    assert re.findall(r'<li><a href="(#finding-\d)">t\d</a></li>', text) == links
    assert re.findall(r'<article id="(finding-\d)">', text) == [f"finding-{number}" for number in range(1, count + 1)]


def test_summary_opens_with_the_headline(folder: Path) -> None:
    lines = (folder / "summary.md").read_text().splitlines()
    assert lines[0] == "# 1 new finding: a \\<night\\> \\| out"
    assert lines[2] == (
        "3 programs (2 executed, 0 refused by SGLang, 1 skipped), 7 steps on 2 pairs in 40 s (0.175 steps a second, 2 workers); "
        "target `pypi:0.5.16`, SGLang 0.5.16, fake runner on cpu."
    )


@pytest.mark.parametrize(
    ("verdict", "fates"),
    [
        ("ok", "1 executed, 0 refused by SGLang, 0 skipped"),
        ("bug", "1 executed, 0 refused by SGLang, 0 skipped"),
        ("unsupported", "0 executed, 1 refused by SGLang, 0 skipped"),
        ("stub_gap", "0 executed, 0 refused by SGLang, 1 skipped"),
        ("infra", "0 executed, 0 refused by SGLang, 1 skipped"),
    ],
)
def test_both_reports_say_what_became_of_the_programs(tmp_path: Path, verdict: str, fates: str) -> None:
    write_reports(write_run(tmp_path, [replace(OK, verdict=verdict)], []))
    assert f"1 program ({fates}), " in (tmp_path / "summary.md").read_text()
    assert f"<p>1 program ({fates}) and " in (tmp_path / "report.html").read_text()


def test_summary_says_how_to_replay(folder: Path) -> None:
    replay = "seamripper replay repros/contract-AttributeError-Wrapper_field-12345678.py --target pypi:0.5.16"
    assert f"- replay: `{replay}`\n" in (folder / "summary.md").read_text()


def test_summary_escapes_the_title_of_a_finding(folder: Path) -> None:
    assert "### 1. Wrapper lacks \\<field\\> \\| read by the caller\n" in (folder / "summary.md").read_text()


def test_summary_has_the_pair_mode_rows(folder: Path) -> None:
    row = "| `triton:fa3` | verify_chain_prefill | 1 | 16.7 % | 0 | 1 | 0 | 0 | 0 |\n"
    assert row in (folder / "summary.md").read_text()


def test_summary_lists_the_broken_line(folder: Path) -> None:
    text = (folder / "summary.md").read_text()
    assert "**1 broken line** left out:\n- `records-0.jsonl` line 3: RecordError" in text


def test_every_markdown_table_has_equal_columns(folder: Path) -> None:
    rows = [line for line in (folder / "summary.md").read_text().splitlines() if line.startswith("|")]
    tables: list[list[int]] = [[]]
    for line in (folder / "summary.md").read_text().splitlines():
        if line.startswith("|"):
            tables[-1].append(len(re.findall(r"(?<!\\)\|", line)))
        elif tables[-1]:
            tables.append([])
    assert len(rows) == 29  # 7 + 3 + 4 + 6 + 3 + 6, heads included
    assert [len(set(table)) for table in tables if table] == [1] * 6


def test_page_loads_nothing(folder: Path, page: Page) -> None:
    links = [
        value for name, value in page.attributes if name.split(":")[-1] in ("href", "src", "srcset", "data", "action")
    ]
    assert links
    assert all(link.startswith("#") for link in links)
    assert not {"script", "link", "iframe", "img", "object", "base"} & set(page.tags)
    assert not re.search(r"@import|url\((?!#)", (folder / "report.html").read_text())


def test_page_escapes_what_the_target_said(folder: Path, page: Page) -> None:
    assert "b" not in page.tags
    assert "field" not in page.tags
    assert "Wrapper lacks <field> | read by\nthe caller" in page.texts
    assert "a <night> | out" in page.texts


def test_page_shows_headline_replay_and_counts(page: Page) -> None:
    text = " ".join(" ".join(page.texts).split())
    assert "1 new finding" in text
    assert "seamripper replay repros/contract-AttributeError-Wrapper_field-12345678.py --target pypi:0.5.16" in text
    assert "shows in 2 of 3 runs" in text
    assert "1 program could not be judged: 1 stub_gap, 0 infra." in text


def test_page_has_two_pictures_with_a_text_for_those_who_cannot_see_them(page: Page) -> None:
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert labels == [
        "Programs run over time: 3 in all; 1 fault met",
        "Steps a second over time: 0.2 on average",
    ]


def test_page_has_no_id_twice(page: Page) -> None:
    ids = [value for name, value in page.attributes if name == "id"]
    assert sorted(set(ids)) == sorted(ids)


def test_page_is_the_same_when_written_again(folder: Path) -> None:
    before = (folder / "report.html").read_bytes()
    write_reports(folder)
    assert (folder / "report.html").read_bytes() == before


def test_junit_counts_failures_and_errors(folder: Path) -> None:
    root = ElementTree.parse(folder / "junit.xml").getroot()
    assert {name: root.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
    }


def test_junit_names_the_failing_mode(folder: Path) -> None:
    root = ElementTree.parse(folder / "junit.xml").getroot()
    (case,) = [case for case in root.iter("testcase") if case.find("failure") is not None]
    assert (case.get("classname"), case.get("name")) == ("triton:fa3", "verify_chain_prefill")


def test_junit_survives_control_characters(tmp_path: Path) -> None:
    finding = {**FINDING, "title": "bell \x07 and \ud800", "message": "\x1b[0m"}
    write_reports(write_run(tmp_path, [BUG], [finding]))
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    (failure,) = root.iter("failure")
    assert failure.get("message") == "bell \ufffd and \ufffd"


def test_csv_has_one_line_per_finding(folder: Path) -> None:
    lines = (folder / "pair_mode.csv").read_text().splitlines()
    assert lines[0] == "pair,mode,ok,bug,unsupported,stub_gap,infra,total,share"
    assert lines[2] == "triton:fa3,decode,3,0,0,0,0,3,0.5"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a_b _c_ __init__", r"a_b \_c\_ \_\_init\_\_"),
        ("*x* [y](z)", r"\*x\* \[y\](z)"),
        ("a\\b\nc\td", r"a\\b c d"),
    ],
)
def test_markdown_text(given: str, expected: str) -> None:
    assert markdown_text(given) == expected


def test_breakable_is_escaped_first() -> None:
    assert breakable("a:<b>/c.") == "a:&lt;b&gt;/<wbr>c."


def test_markdown_code_holds_no_backtick_and_no_bare_pipe() -> None:
    assert markdown_code("a`b|c\nd") == "`a'b\\|c d`"


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.04, "0.0 s"), (42.3, "42 s"), (725, "12 min 05 s"), (27000, "7 h 30 min")]
)
def test_duration(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(("value", "expected"), [(float("nan"), "–"), (1234.5, "1,234"), (0.1754, "0.175")])
def test_rate(value: float, expected: str) -> None:
    assert rate(value) == expected


def test_module_lists_the_files_it_wrote(tmp_path: Path) -> None:
    write_run(tmp_path, [OK], [])
    done = subprocess.run([sys.executable, "-m", "reports", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == str(tmp_path / "junit.xml")


def test_module_refuses_a_missing_folder_in_one_line(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    done = subprocess.run([sys.executable, "-m", "reports", absent], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"reports: {absent} is no folder; expected the --out folder of a run\n"
