"""The progress that a log and a terminal get."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fuzz import display as display_module
from fuzz.display import Display, is_new_bug
from fuzz.order import CampaignOptions
from fuzz.process import Ready
from tests.reports.sample import BUG, FINDING, OK

OPTIONS = CampaignOptions(target="pypi:1", repros=Path("r"), out=Path("o"), python="python", programs=10)
READY = Ready("9.1", {"triton:fa3": ""}, 12.4)


def console(*, is_terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=120, markup=False, highlight=False)


def text(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


def test_a_log_says_what_starts() -> None:
    to = console()
    with Display(to) as display:
        display.started(OPTIONS, READY, ("triton:fa3", "fa3:triton"))
    assert text(to) == "SGLang 9.1, fake runner, triton:fa3, fa3:triton (imported in 12 s)\n"


def test_a_log_gets_a_line_of_counts_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "PLAIN_SECONDS", 0)
    to = console()
    with Display(to) as display:
        display.started(OPTIONS, READY, ("triton:fa3",))
        display.program_done(OK)
        display.program_done(BUG)
    last = text(to).splitlines()[-1]
    assert last.startswith("20 s: 2 programs (")
    assert "6 steps (" in last
    assert last.endswith("; 1 ok, 1 bug; 0 new")


def test_where_it_is_not_known_yet_what_is_new_nothing_is_said_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "PLAIN_SECONDS", 0)
    to = console()
    with Display(to, counts_new=False) as display:
        display.started(OPTIONS, READY, ("triton:fa3",))
        display.program_done(BUG)
    assert text(to).splitlines()[-1].endswith("; 1 bug")


def test_a_log_gets_no_line_for_each_program() -> None:
    to = console()
    with Display(to) as display:
        for _ in range(100):
            display.program_done(OK)
    assert text(to) == ""


def test_a_short_phase_leaves_no_line() -> None:
    to = console()
    with Display(to) as display:
        display.phase("getting pypi:1")
    assert text(to) == ""


def test_a_long_phase_leaves_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "PHASE_SECONDS", 0)
    to = console()
    with Display(to) as display:
        display.phase("getting pypi:1")
        deadline = time.monotonic() + 5
        while not text(to) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert text(to) == "getting pypi:1\n"


@pytest.mark.parametrize(
    ("change", "label"),
    [({}, "new bug"), ({"known": True}, "known bug"), ({"verdict": "stub_gap"}, "stub_gap")],
)
def test_a_finding_is_one_line(change: dict[str, object], label: str) -> None:
    to = console()
    with Display(to) as display:
        display.finding({**FINDING, "known": False, **change})
    where = "(triton:fa3, verify_chain_prefill, after 20 s)"
    assert text(to) == f"{label} Wrapper lacks <field> | read by the caller {where}\n"


def test_a_terminal_shows_the_budget_and_is_given_back() -> None:
    to = console(is_terminal=True)
    with Display(to) as display:
        display.started(OPTIONS, READY, ("triton:fa3",))
        display.program_done(OK)
        display.phase("shrinking")
    shown = text(to)
    assert "1 of 10 programs" in shown
    assert "shrinking" in shown
    assert shown.index("\x1b[?25l") < shown.rindex("\x1b[?25h")


def test_a_terminal_takes_no_text_for_markup() -> None:
    to = console(is_terminal=True)
    with Display(to) as display:
        display.finding({**FINDING, "known": False, "title": "[/red] lacks [x]"})
    assert "[/red] lacks [x]" in text(to)


@pytest.mark.parametrize(("change", "is_new"), [({}, True), ({"known": True}, False), ({"verdict": "infra"}, False)])
def test_new_is_a_bug_that_nobody_knew(change: dict[str, object], is_new: bool) -> None:
    assert is_new_bug({**FINDING, "known": False, **change}) is is_new


def test_a_known_fault_is_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "PLAIN_SECONDS", 0)
    to = console()
    with Display(to) as display:
        display.started(OPTIONS, READY, ("triton:fa3",))
        display.finding({**FINDING, "known": False})
        display.finding({**FINDING, "known": True})
        display.program_done(BUG)
    assert text(to).splitlines()[-1].endswith("; 1 bug; 1 new, 1 known")


def test_corpus_is_counted_where_the_engine_builds_on_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(display_module, "PLAIN_SECONDS", 0)
    monkeypatch.setattr(display_module, "CORPUS_SECONDS", 0)
    (tmp_path / "corpus").mkdir()
    to = console()
    with Display(to) as display:
        display.started(replace(OPTIONS, engine="atheris", out=tmp_path), READY, ("triton:fa3",))
        display.program_done(OK)
        for name in ("a.program", "b.program", "c.program.broken", ".d.program.7"):
            (tmp_path / "corpus" / name).touch()
        display.program_done(OK)
    assert [line.rsplit("; ", 1)[1] for line in text(to).splitlines()[1:]] == ["corpus 0", "corpus 2"]


def test_more_than_one_worker_is_told_and_those_of_a_cluster_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "PLAIN_SECONDS", 0)
    to = console()
    with Display(to) as display:
        display.started(replace(OPTIONS, workers=2), READY, ("triton:fa3",))
        display.program_done(OK)
        display.program_done(replace(OK, worker=2))
    assert [line.rsplit("; ", 1)[1] for line in text(to).splitlines()[1:]] == ["2 workers", "3 workers"]


def test_worker_that_ends_no_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "PLAIN_SECONDS", 0)
    clock = [100.0]
    monkeypatch.setattr(display_module.time, "monotonic", lambda: clock[0])
    to = console()
    with Display(to) as display:
        display.started(replace(OPTIONS, workers=2), READY, ("triton:fa3",))
        clock[0] += 40
        display.program_done(OK)
    assert text(to).splitlines()[-1].endswith("; 2 workers (1 of them for 40 s at one thing)")


def test_a_terminal_shows_corpus_and_workers(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.program").touch()
    to = console(is_terminal=True)
    with Display(to) as display:
        display.started(replace(OPTIONS, engine="atheris", out=tmp_path, workers=2), READY, ("triton:fa3",))
        display.program_done(OK)
        display.phase("shrinking")
    assert "  0 new  corpus 1  2 workers\n" in text(to)
