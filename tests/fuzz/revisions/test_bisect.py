"""Bisection of git histories in which it is known what each commit does to the bug."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fuzz.bisection import BisectResult
from fuzz.revisions import Rig, bisect_commits
from fuzz.store import StoreError
from fuzz.targets import TargetError
from tests.fuzz.conftest import FAKE_EXECUTOR
from tests.fuzz.revisions.histories import History, write_script


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Equal letters are equal sources: each is run once for all cases, which take what it gave from the cache."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture
def rig(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("SEAMRIPPER_CACHE", str(tmp_path / "cache"))
    return Rig(sys.executable, tmp_path / "out", program_seconds=20, executor=FAKE_EXECUTOR, results=results)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return write_script(tmp_path / "a.py")


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "checkout")


def told(history: History, result: BisectResult) -> list[str]:
    """ "introduced 3": in that commit; "fixed 4..5": in one of those."""
    line = [str(history.number(target)) for target in result.line]
    return [f"{change.kind} {change.named(line)}" for change in result.changes]


@pytest.mark.parametrize(
    ("letters", "good", "bad", "found", "exit_code"),
    [
        # Found to the commit.
        ("cb", [0], [1], ["introduced 1"], 0),
        ("cccbbb", [0], [5], ["introduced 3"], 0),
        ("bbbbcc", [5], [0], ["fixed 4"], 0),
        ("ccbbbcc", [0, 6], [3], ["introduced 2", "fixed 5"], 0),
        ("cncnbnbn", [0], [7], ["introduced 4"], 0),  # commits that do nothing
        ("ciccbbib", [0], [7], ["introduced 4"], 0),  # commits that do not import, none of them beside the change
        ("ccffff", [0], [5], ["introduced 2"], 0),  # shows in three of ten runs
        ("cfffcC", [0, 5], [1], ["introduced 1", "fixed 4"], 0),
        ("ccbBBB", [0], [5], ["introduced 2"], 0),  # a second fault, which does not hide the first
        ("coccbb", [0], [5], ["introduced 4"], 0),  # a second fault before the first
        ("cbbcbb", [0], [5], ["introduced 1", "fixed 3", "back again 4"], 0),
        ("cbcnbbnc", [0, 7], [4], ["introduced 1", "fixed 2", "back again 4", "fixed 7"], 0),
        ("bcbbbc", [5], [0], ["fixed 1", "back again 2", "fixed 5"], 0),
        ("cgguub", [0], [5], ["introduced 1..5"], 125),
        # A range is left.
        ("cciibb", [0], [5], ["introduced 2..4"], 125),
        ("bbioccb", [5], [0], ["fixed 2..4"], 125),
        ("cubbgccc", [0, 7], [3], ["introduced 1..2", "fixed 4..5"], 125),
        ("ckb", [0], [2], ["introduced 1..2"], 125),
    ],
)
def test_history(
    rig: Rig,
    script: Path,
    history: History,
    letters: str,
    good: list[int],
    bad: list[int],
    found: list[str],
    exit_code: int,
) -> None:
    history.add(letters)
    result = bisect_commits(script, history.folder, [str(n) for n in good], [str(n) for n in bad], 3, rig)
    assert (told(history, result), result.exit_code) == (found, exit_code)


@pytest.mark.parametrize(
    ("letters", "good", "bad", "reason"),
    [
        ("cc", "0", "1", "1c was given as bad, but the bug is not there (clean 0/20: every run was completed"),
        ("bb", "0", "1", "0b was given as good, but it is not clean (bug 3/3: contract/KeyError/step)"),
        ("cu", "0", "1", "1u was given as bad, but the bug is not there (unsupported 0/3: Refusal at step: page size)"),
        ("co", "0", "1", "1o was given as bad, but the bug is not there (other 3/3: contract/TypeError/step)"),
        ("ib", "0", "1", "0i was given as good, but it is not clean (infra 0/0: the worker cannot run the target"),
    ],
)
def test_repro_that_does_not_hold_at_an_end_is_refused(
    rig: Rig, script: Path, history: History, letters: str, good: str, bad: str, reason: str
) -> None:
    history.add(letters)
    result = bisect_commits(script, history.folder, [good], [bad], 3, rig)
    (answer,) = result.answers
    assert answer.startswith("cannot tell: ")
    assert reason in answer
    assert result.exit_code == 125


def test_what_a_merge_brought_in_is_searched_too(rig: Rig, script: Path, history: History) -> None:
    history.add("cC")
    history.git("checkout", "-q", "-b", "side")
    history.add("cbB")
    history.git("checkout", "-q", "main")
    history.add("n")
    history.git("merge", "-q", "side", "-m", "6 the merge")
    history.git("tag", "6")
    history.commits.append(history.git("rev-parse", "HEAD"))
    result = bisect_commits(script, history.folder, ["0"], ["6"], 3, rig)
    assert told(history, result) == ["introduced 3"]


def test_answers_are_said_in_words(rig: Rig, script: Path, history: History) -> None:
    history.add("ccbbic")
    result = bisect_commits(script, history.folder, ["0", "5"], ["2"], 3, rig)
    dates = [history.git("show", "-s", "--format=%h %cs %s", str(number)) for number in (2, 4, 5)]
    why = "infra: the worker cannot run the target: ImportError: a half-finished commit"
    introduced, fixed = result.answers
    assert introduced == f"introduced in {dates[0]}"
    assert fixed.startswith(f"fixed in one of {dates[1]} .. {dates[2]} (cannot tell: {why}")


def test_state_is_kept_and_gone_on_with(rig: Rig, script: Path, history: History, tmp_path: Path) -> None:
    history.add("cccbbb")
    rig = Rig(rig.python, rig.out, rig.program_seconds, rig.executor, results=None)
    asked = script, history.folder, ["0"], ["5"], 3
    seen: list[str] = []

    def stop_after_two(text: str) -> None:
        seen.append(text)
        if len([line for line in seen if "tried" in line]) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bisect_commits(*asked, rig, stop_after_two)
    state = json.loads((tmp_path / "out" / "bisect.json").read_text())
    assert len(state["samples"]) == 3
    seen.clear()
    result = bisect_commits(*asked, rig, seen.append)
    assert told(history, result) == ["introduced 3"]
    assert len([line for line in seen if "repro(s)" in line]) == len(result.cells) - 3


def test_state_of_another_bisection_is_left_alone(rig: Rig, script: Path, history: History) -> None:
    history.add("ccbb")
    bisect_commits(script, history.folder, ["0"], ["3"], 3, rig)
    with pytest.raises(StoreError, match="is the state of another bisection; give another --out"):
        bisect_commits(script, history.folder, ["1"], ["3"], 3, rig)


def test_revisions_of_two_branches(rig: Rig, script: Path, history: History) -> None:
    history.add("c")
    history.git("checkout", "-q", "-b", "side")
    history.add("c")
    history.git("checkout", "-q", "main")
    history.add("b")
    with pytest.raises(TargetError, match="is an ancestor of the others; give revisions of one branch"):
        bisect_commits(script, history.folder, ["side"], ["main"], 3, rig)


def test_no_such_revision(rig: Rig, script: Path, history: History) -> None:
    history.add("c")
    with pytest.raises(TargetError, match="no revision 'v9' there"):
        bisect_commits(script, history.folder, ["0"], ["v9"], 3, rig)
