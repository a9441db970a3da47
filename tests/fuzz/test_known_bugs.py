"""Lists of known bugs: what is read, and the line that says what is wrong with a list."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.known_bugs import KnownBug, KnownBugsError, read_bugs

GOOD = """
[[bug]]
id = "A1"
title = "a name is not forwarded"
reference = "PR #1"
present = "0.5.16"
fixed = "path:/somewhere"
match = "no 'name'"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "bugs.toml"
    path.write_text(text)
    return path


def test_a_version_alone_means_that_release(tmp_path: Path) -> None:
    assert read_bugs(write(tmp_path, GOOD)) == (
        KnownBug("A1", "a name is not forwarded", "PR #1", "pypi:0.5.16", "path:/somewhere", "no 'name'", "run"),
    )


def test_by_audit(tmp_path: Path) -> None:
    assert read_bugs(write(tmp_path, GOOD + 'by = "audit"\n'))[0].by == "audit"


def test_match_is_searched_for_anywhere() -> None:
    bug = KnownBug("A1", "t", "r", "pypi:1.0", "pypi:1.1", "no '(a|b)'")
    assert bug.matches("AttributeError: X has no 'b', read by f: ...")
    assert not bug.matches("AttributeError: X has no 'c'")


def test_the_program_that_shows_it_is_searched_too() -> None:
    bug = KnownBug("A1", "t", "r", "pypi:1.0", "pypi:1.1", "off", program='"graph":[1-9]')
    assert bug.matches("it is off", '{"world":{"graph":2}}')
    assert not bug.matches("it is off", '{"world":{"graph":0}}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"holds nothing; expected \[\[bug\]\] tables and nothing else"),
        ("[bug]\nid = 1", r"holds bug; expected \[\[bug\]\] tables and nothing else"),
        ("bug = [1]", r"bug 1: is 1; expected a table with id, title"),
        ("id =", r"is not TOML \(.*\); expected \[\[bug\]\] tables"),
        (GOOD + 'colour = "red"', "bug 1: has a field 'colour'; expected id, title, reference"),
        (GOOD.replace('fixed = "path:/somewhere"', ""), "bug 1: has no fixed; expected id, title"),
        (GOOD.replace('"A1"', "7"), "bug 1: id is 7; expected a text that is not empty"),
        (GOOD.replace('"A1"', '"../A1"'), "bug 1: id is '../A1'; expected letters, digits"),
        (GOOD.replace('"0.5.16"', '"release 16"'), "bug 1: present is 'release 16'; expected installed, pypi:VERSION"),
        (GOOD.replace('"0.5.16"', '"path:/somewhere"'), "bug 1: present and fixed are both 'path:/somewhere'"),
        (GOOD.replace("no 'name'", "("), r"bug 1: match is '\('; expected a regular expression"),
        (GOOD + 'program = "("', r"bug 1: program is '\('; expected a regular expression"),
        (GOOD + 'by = "audit"\nprogram = "x"', "bug 1: program is 'x'; expected none by audit"),
        (GOOD + 'by = "luck"', "bug 1: by is 'luck'; expected run or audit"),
        (GOOD + GOOD, "bug 2: id is 'A1', as an earlier one's"),
    ],
)
def test_a_list_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(KnownBugsError, match=message) as raised:
        read_bugs(write(tmp_path, text))
    assert "\n" not in str(raised.value)


def test_a_list_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KnownBugsError, match="none.toml cannot be read \\(No such file or directory\\)"):
        read_bugs(tmp_path / "none.toml")
