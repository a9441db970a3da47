"""The page in a real browser: narrow and wide, light and dark. Skipped where there is no Chromium, or no Playwright."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.sealed import sealed
from reports.render import write_reports
from tests.reports.browser import LOOKS, Look, browser, chromium, faults_of
from tests.reports.sample import BUG, FINDING, GAP, OK, write_run

NARROW = Look("light", 400)
LONG = "BatchPrefillWithRaggedKVCacheWrapper.forward_extend_with_logits_soft_cap_and_window_left"


@pytest.fixture(scope="module")
def opened() -> Iterator[Any]:
    pytest.importorskip("playwright", reason="the extra 'browser' is not installed")
    if chromium() is None:
        pytest.skip("no Chromium on this machine")
    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with something in each of its sections, and long names everywhere."""
    folder = tmp_path_factory.mktemp("run")
    long = {**FINDING, "signature": f"numeric/wrong_output/{LONG}", "title": f"decode on {LONG}: wrong output"}
    long |= {"beside": [f"bounds/hole/{LONG}.loc_ptr", f"state/stray_kv_write/{LONG}"]}
    long |= {
        "real": {"shown": 0, "runs": 0, "why_not": "unsupported: the tiny Llama has no window; use the fake runner"}
    }
    dismissed = {
        **long,
        "signature": f"numeric/nan/{LONG}",
        "dismissed": "rounding: shows in 1 of 8 runs with other data",
    }
    corrupt = {**FINDING, "signature": f"corrupt/index_behind_the_pool/{LONG}", "evidence": {"outcome": "silent"}}
    refused = replace(
        GAP, verdict="unsupported", reason=f"Refused: ServerArgs: {LONG} requires one of ['triton', 'fa3']"
    )
    write_run(folder, [OK, BUG, GAP, refused], [FINDING, long, dismissed, corrupt])
    known = {
        "signature": long["signature"],
        "script": "r.py",
        "reason": "https://example.org/" + 9 * "long/",
        "count": 0,
    }
    (folder / "known.jsonl").write_text(sealed({**known, "state": "gone", "detail": LONG}) + "\n")
    (folder / "cells.jsonl").write_text(
        sealed({"pair": "triton:fa3", "mode": "verify_tree_decode", "state": "unsupported", "reason": LONG}) + "\n"
    )
    then = {"title": f"decode on {LONG}", "pair": "torch_native:trtllm_mha", "script": "", "shown": 1, "runs": 10}
    sequel = {**then, "signature": f"bounds/reads_outside/{LONG}", "count": 0, "reruns": 20}
    fixed, unclear = (
        {**sequel, "state": "fixed", "detail": ""},
        {**sequel, "state": "unclear", "detail": f"bug: {LONG}"},
    )
    (folder / "since.jsonl").write_text("".join(sealed(one) + "\n" for one in (fixed, unclear)))
    (folder / "run.json").write_text(json.dumps({"title": LONG, "since": 9 * "nights/"}))
    write_reports(folder)
    return folder / "report.html"


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_no_error_in_the_console_and_no_text_cut_off(opened: Any, page: Path, look: Look) -> None:
    assert faults_of(opened, page, look) == []


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ("<p>short</p>", []),
        ("<script>console.error('oh')</script>", ["console error: oh"]),
        ("<script>missing()</script>", ["error: missing is not defined"]),
        (
            "<p style='width: 50px; overflow: hidden; white-space: nowrap'>a longer text</p>",
            ["cut off: p: a longer text"],
        ),
        ("<p style='white-space: nowrap; width: 600px'>" + 60 * "wide " + "</p>", None),
        ("<div class='scroll' style='overflow-x: auto'><pre>" + 99 * "x" + "</pre></div>", None),
    ],
)
def test_what_is_wrong_is_noticed(opened: Any, tmp_path: Path, body: str, faults: list[str] | None) -> None:
    file = tmp_path / "page.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><body>{body}")
    found = faults_of(opened, file, NARROW)
    assert found == faults if faults is not None else len(found) > 0
