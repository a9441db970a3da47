"""The table of supported releases: what its cells say, and that the README's is the command's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fuzz.support import ROWS, Support, markdown, spans, support

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "tests" / "data" / "support.json"
BEGIN, END = "<!-- seamripper support: begin -->\n", "<!-- seamripper support: end -->\n"


def measured() -> list[Support]:
    return [Support.from_json(one) for one in json.loads(MEASURED.read_text())["releases"]]


def release(version: str, **answers: str) -> Support:
    return Support(version, {"a": answers}, {"a:a": "", "a:b": "yes", "b:a": "no"})


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (["yes", "yes", "yes"], "yes"),
        (["no", "no", "no"], "–"),
        (["bug", "bug", "bug"], "bug"),
        (["no", "yes", "yes"], "2 to 3"),
        (["no", "yes", "no"], "2"),
        (["bug", "bug", "yes"], "1 to 2: bug; 3"),
        (["", "", "decode"], "3: decode"),
        (["", "", ""], "–"),
    ],
)
def test_a_cell_names_the_releases_where_they_differ(answers: list[str], text: str) -> None:
    assert spans([Support("1"), Support("2"), Support("3")], answers) == text


def test_a_release_that_could_not_be_tried_is_left_out() -> None:
    assert spans([Support("1"), Support("2", error="no such release")], ["yes", ""]) == "yes"


def test_tables_of_two_releases() -> None:
    lines = markdown([release("1", extend="yes"), release("2", extend="bug", decode="yes")]).splitlines()
    assert lines[:6] == [
        "|  | a |",
        "| --- | --- |",
        "| extend | 1; 2: bug |",
        "| extend, graph | – |",
        "| mixed | – |",
        "| decode | 2 |",
    ]
    assert lines[-3:] == ["| prefill \\ decode | a |", "| --- | --- |", "| a | – |"]


def test_a_release_survives_its_json() -> None:
    one = Support("1", {"a": {"extend": "no"}}, {"a:b": "yes"}, {"a, extend": "no extend"})
    assert Support.from_json(one.to_json()) == one


def test_every_release_has_an_answer_in_every_cell() -> None:
    for one in measured():
        assert one.error == ""
        assert all(list(rows) == list(ROWS) for rows in one.backends.values())
        assert len(one.pairs) == len(one.backends) * (len(one.backends) - 1)


def test_the_table_in_the_readme_is_what_the_command_prints() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.split(BEGIN)[1].split(END)[0].strip() == markdown(measured()).strip()


@pytest.mark.release
def test_the_newest_release_still_answers_so() -> None:
    (newest,) = [one for one in measured() if one.version == "0.5.23"]
    found = support("pypi:0.5.23", sys.executable, lambda text: None)
    assert (found.error, found.backends, found.pairs) == ("", newest.backends, newest.pairs)
