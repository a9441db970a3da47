"""Bisection over a history of real releases of SGLang, with the real repro of the bug that 0.5.16 has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.launch import ROOT
from fuzz.revisions import Rig, bisect_commits
from tests.fuzz.revisions.histories import History

pytestmark = pytest.mark.release

REPRO = ROOT / "repros" / "contract-AttributeError-HybridAttnBackend_max_context_len-319ca5a9.py"
NOTHING, BROKEN = "a commit that does nothing", "a commit that does not import"
# Release trees, in order. The bug comes with commit 2, goes with 4, is back again with 6.
LINE = ("0.5.15.post1", NOTHING, "0.5.16", BROKEN, "0.5.17", NOTHING, "0.5.16", NOTHING)


@pytest.fixture(scope="module")
def history(target_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> History:
    """Commits of whole trees, made in git's index without a file being copied."""
    made = History(tmp_path_factory.mktemp("sglang") / "checkout")
    made.git("config", "core.looseCompression", "0")
    trees: dict[str, str] = {}
    for number, what in enumerate(LINE):
        if what == NOTHING:
            made.git("read-tree", "HEAD")
            put(made, "README", f"{number}\n")
        elif what == BROKEN:
            made.git("read-tree", "HEAD")
            put(made, "python/sglang/__init__.py", "raise ImportError('half-finished')\n")
        else:
            trees[what] = trees.get(what) or tree_of(made, target_folder(what))
            made.git("read-tree", "--empty")
            made.git("read-tree", "--prefix=python/", trees[what])
        made.git("commit", "-q", "-m", f"{number} {what}")
        made.git("tag", str(number))
        made.commits.append(made.git("rev-parse", "HEAD"))
    return made


def tree_of(history: History, release: Path) -> str:
    """The release's package as a tree."""
    history.git("read-tree", "--empty")
    history.git(f"--work-tree={release}", "add", "-A", "--force", "--", "sglang", ":(exclude,glob)**/__pycache__/**")
    return history.git("write-tree")


def put(history: History, place: str, text: str) -> None:
    command = ["git", "-C", str(history.folder), "hash-object", "-w", "--stdin"]
    blob = subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout.strip()
    history.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{place}")


def test_the_bug_came_went_and_came_back(history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMRIPPER_CACHE", str(tmp_path / "cache"))
    rig = Rig(sys.executable, tmp_path / "out", results=tmp_path / "results")
    result = bisect_commits(REPRO, history.folder, ["0"], ["7"], 3, rig)
    line = [str(history.number(target)) for target in result.line]
    found = [f"{change.kind} {change.named(line)}" for change in result.changes]
    assert found == ["introduced 2", "fixed 3..4", "back again 6"]
    assert "cannot tell: infra: the worker cannot run the target: ImportError: half-finished" in result.answers[1]


def test_a_script_works_under_git_bisect_run_by_itself(history: History) -> None:
    history.git("checkout", "-q", "-f", "main")
    history.git("bisect", "start", "7", "4")
    script = [sys.executable, "-m", "fuzz.run_script", str(REPRO), "--target", "path:python"]
    command = ["git", "-C", str(history.folder), "bisect", "run", *script]
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings, check=False)
    history.git("bisect", "reset")
    assert f"{history.commits[6]} is the first bad commit" in done.stdout, done.stdout + done.stderr
