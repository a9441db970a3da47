"""A run as JUnit XML, for continuous integration: a suite per pair, a case per step mode, a failure per finding."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from fuzz.since import FIXED, MET
from reports.morning import since_table
from reports.replays import doubt

# What XML 1.0 forbids; evidence may hold anything that a program printed.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, pair_mode: pd.DataFrame, findings: pd.DataFrame, since: pd.DataFrame) -> None:
    """Write ``path``; ``findings`` are the new ones, ``since`` what became of those of an earlier run.

    A mode only ever refused by SGLang is skipped; one that the harness could not judge is an error. A fault that is
    fixed since is a case that passes; one that was not met and is not known to be fixed is skipped: it decides nothing.
    """
    xml = JUnitXml("seamripper")
    pairs = list(dict.fromkeys([*pair_mode["pair"], *findings["pair"]]))
    for pair in pairs:
        suite = TestSuite(clean(pair))
        ours = findings[findings["pair"] == pair]
        modes = pair_mode[pair_mode["pair"] == pair]
        for row in modes.to_dict("records"):
            suite.add_testcase(_mode_case(pair, str(row["mode"]), row, ours[ours["mode"] == row["mode"]]))
        for mode, found in ours[~ours["mode"].isin(modes["mode"])].groupby("mode"):
            suite.add_testcase(_mode_case(pair, str(mode), {}, found))
        xml.add_testsuite(suite)
    if len(since):
        xml.add_testsuite(_since_suite(since))
    xml.update_statistics()  # type: ignore[no-untyped-call]  # junitparser leaves this one method untyped
    xml.write(str(path), pretty=True)


def _since_suite(since: pd.DataFrame) -> TestSuite:
    suite = TestSuite("since")
    for row in since_table(since[since["state"] != MET]).to_dict("records"):
        case = TestCase(clean(row["signature"]), classname=clean(row["pair"]))
        if row["state"] != FIXED:
            case.result = [Skipped(clean(f"{row['words']}: {row['told']}".removesuffix(": ")))]
        suite.add_testcase(case)
    return suite


def _mode_case(pair: str, mode: str, counts: dict[str, int], found: pd.DataFrame) -> TestCase:
    case = TestCase(clean(mode), classname=clean(pair))
    results: list[Any] = []
    for finding in found.to_dict("records"):
        failure = Failure(clean(finding["title"]), clean(finding["signature"]))
        failure.text = clean(
            f"{finding['message']}\n\n{doubt(finding) or 'shows in every run'}\n"
            f"script: {finding['script'] or 'none'}\ntarget: {finding['target']}"
        )
        results.append(failure)
    unjudged = counts.get("stub_gap", 0) + counts.get("infra", 0)
    if unjudged:
        results.append(Error(f"{unjudged} of {counts['total']} steps could not be judged (stub_gap or infra)"))
    elif counts and counts["unsupported"] == counts["total"]:
        results.append(Skipped("SGLang refuses this mode for this pair"))
    case.result = results
    return case


def clean(text: object) -> str:
    """``text`` without the characters that XML forbids, each shown as U+FFFD."""
    return _FORBIDDEN.sub("\ufffd", str(text))
