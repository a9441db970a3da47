"""The audit on real releases, and the test file that it writes, run against two of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.audit import AuditReport, audit, write_test

pytestmark = pytest.mark.release
ROOT = Path(__file__).parents[3]
TIMEOUT_SECONDS = 600  # importing a release takes 15 s on a quiet core; a busy machine has taken ten times that
DRIVER = """
import sys
from stubs import imports
imports.install()
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""

Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def report(target_folder: Folder) -> AuditReport:
    return audit(target_folder("0.5.16"))


def run_written_test(path: Path, folder: Path, wanted: str) -> subprocess.CompletedProcess[str]:
    """Runs the tests of a written file whose names match, with SGLang from `folder` and stand-ins for what it lacks."""
    command = [sys.executable, "-c", DRIVER, "-q", "-c", os.devnull, "--rootdir", str(path.parent), "-k", wanted]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "-W", "ignore", str(path)],
        env=environment,
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def test_the_forgotten_name_is_among_the_first_five(report):
    assert ("HybridAttnBackend", "max_context_len", "missing") in [
        (r.wrapper, r.name, r.answer) for r in report.rows[:5]
    ]


def test_the_next_release_answers_it(target_folder):
    rows = audit(target_folder("0.5.17"), ["HybridAttnBackend"]).rows
    assert "max_context_len" not in {r.name for r in rows}


def test_the_wrappers_of_a_release_are_found(report):
    assert {w.name for w in report.wrappers} == {
        "AscendHybridLinearAttnBackend",
        "HybridAttnBackend",
        "HybridLinearAttnBackend",
        "MiniMaxHybridAttnBackend",
        "ShortConvHybridAttnBackend",
        "TboAttnBackend",
    }


def test_the_written_test_fails_where_the_name_is_missing(report, target_folder, tmp_path):
    path = tmp_path / "test_pass_through.py"
    write_test(report, path)
    ran = run_written_test(path, target_folder("0.5.16"), "max_context_len")
    assert "[HybridAttnBackend-max_context_len]" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("1 failed, 1 passed")
    assert ran.returncode == 1


def test_the_written_test_passes_where_the_name_is_answered(report, target_folder, tmp_path):
    path = tmp_path / "test_pass_through.py"
    write_test(report, path)
    ran = run_written_test(path, target_folder("0.5.17"), "max_context_len")
    assert ran.stdout.splitlines()[-1].startswith("2 passed")
    assert ran.returncode == 0
