"""What the verbs say to people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.answers import campaign_json, findings_table, known_lines, since_lines
from fuzz.order import CampaignResult


def standing(script: str, state: str) -> dict[str, Any]:
    return {
        "signature": "a/b/c",
        "script": f"known/{script}",
        "reason": "why",
        "count": 0,
        "state": state,
        "detail": "",
    }


STATES = {"a.py": "met", "b.py": "gone", "c.py": "shows", "d.py": "unclear", "e.py": "not tried"}
RESULT = CampaignResult(
    findings=[],
    programs=1,
    steps=1,
    exit_code=0,
    out=Path("out"),
    scripts=(),
    interrupted=False,
    reason="",
    known=tuple(standing(script, state) for script, state in STATES.items()),
)
FINDING = {"verdict": "bug", "known": False, "title": "t", "signature": "a/b/c", "pair": "p:d", "mode": "m", "count": 1}


def shows(**fields: Any) -> str:
    """The column of a finding's reliability, as the table has it."""
    table = findings_table([{**FINDING, **fields}])
    (cell,) = table.columns[5].cells
    return str(cell)


def test_known_faults_that_are_gone_or_of_which_nothing_can_be_told_have_a_line() -> None:
    assert known_lines(RESULT) == [
        "known and no longer shown: known/b.py (why)",
        "known, and nothing can be told of: d.py, e.py",
    ]


def test_all_known_faults_are_in_the_json() -> None:
    assert [one["state"] for one in campaign_json(RESULT, [])["known"]] == list(STATES.values())


def test_what_an_earlier_run_found_has_a_line_unless_it_was_met() -> None:
    told = (
        ("met", 0, ""),
        ("fixed", 3, ""),
        ("shows", 1, ""),
        ("unclear", 1, "infra: lost"),
        ("not run again", 0, ""),
    )
    since = tuple({"signature": "a/b/c", "state": state, "reruns": n, "detail": why} for state, n, why in told)
    assert since_lines(replace(RESULT, since=since)) == [
        "fixed since the earlier run (clean in 3 runs of its program): a/b/c",
        "not met, and its program still shows it: a/b/c",
        "not seen again (unclear: infra: lost): a/b/c",
        "not seen again (not re-run): a/b/c",
    ]
    assert campaign_json(replace(RESULT, since=since), [])["since"] == list(since)


def test_what_shows_in_no_run_is_not_reproduced() -> None:
    assert shows(reliability=[0, 10]) == "0/10 not reproduced"


def test_what_shows_in_each_run_is_in_no_doubt() -> None:
    assert shows(reliability=[10, 10]) == "10/10"


def test_reliability_under_both_runners() -> None:
    assert shows(reliability=[9, 10], real={"shown": 3, "runs": 3, "why_not": ""}) == "9/10 flaky, real 3/3"


def test_reliability_where_the_real_runner_cannot_tell() -> None:
    assert shows(reliability=[10, 10], real={"shown": 0, "runs": 0, "why_not": "no window"}) == "10/10"
    assert shows(reliability=[10, 10], real=None) == "10/10"


def test_nobody_looked_yet() -> None:
    assert shows(reliability=[0, 0], real=None) == "–"
