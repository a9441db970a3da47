"""The README's recipes for a night and for a pull request: run as written, but shorter, on a SGLang of a few lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
# What `seamripper` is in these tests: the command line, with two seconds for a campaign and workers that run no SGLang.
# The release that a recipe names is the folder "released".
SEAMRIPPER = """#!{python}
import sys
sys.path.insert(0, {root!r})
from dataclasses import replace
from fuzz import __main__, campaign, lockstep
from fuzz.verbs import campaigns, contrasts

def shorter(options):
    target = options.target.replace("pypi:0.5.23", "path:released")
    return replace(options, seconds=2, executor="tests.fuzz.fake_executor", target=target)

campaigns.run_campaign = lambda options, progress: campaign.run_campaign(shorter(options), progress)
contrasts.run_contrast = lambda options, progress: lockstep.contrast(
    replace(options, baseline="path:released", campaign=shorter(options.campaign)), progress
)
sys.exit(__main__.main())
"""
CLEAN = "__version__ = '9.1'\ndef step(kind, seed): pass\n"
BROKEN = "__version__ = '9.2'\ndef step(kind, seed):\n    if kind == 'decode': raise KeyError('x')\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder to run a recipe in: ``released``, ``python`` and ``seamripper/repros``, as a workflow lays them out."""
    for name, source in (("released", CLEAN), ("python", CLEAN)):
        package = tmp_path / name / "sglang"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source)
    (tmp_path / "seamripper").symlink_to(ROOT)
    (tmp_path / "repros").symlink_to(ROOT / "repros")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "seamripper").write_text(SEAMRIPPER.format(python=sys.executable, root=str(ROOT)))
    (tmp_path / "bin" / "seamripper").chmod(0o755)
    return tmp_path


def shell(place: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line as a step of a workflow is run."""
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(place / "step.md")}
    command = ["bash", "-e", "-c", line]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


def workflow() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def steps(event: str) -> list[str]:
    """The commands of the workflow's steps that follow the installation, where it runs for this event."""
    (job,) = workflow()["jobs"].values()
    found = [step for step in job["steps"] if "run" in step and "pip install" not in step["run"]]
    return [step["run"] for step in found if step["if"] in ("always()", f"github.event_name == '{event}'")]


def break_decode(folder: Path) -> None:
    (folder / "sglang" / "__init__.py").write_text(BROKEN)


def test_the_workflow_runs_by_night_and_for_each_pull_request() -> None:
    triggers = workflow()[True]  # YAML's word for "on"
    assert triggers == {"schedule": [{"cron": "0 2 * * *"}], "pull_request": None}
    assert [len(steps(event)) for event in triggers] == [2, 2]


@pytest.mark.parametrize(
    ("is_broken", "status", "headline"), [(False, 0, "# Nothing new: "), (True, 1, "# 1 new finding: ")]
)
def test_the_night_of_the_workflow(place: Path, is_broken: bool, status: int, headline: str) -> None:
    if is_broken:
        break_decode(place / "python")
    night, summary = steps("schedule")
    ran = shell(place, night)
    assert (ran.returncode, shell(place, summary).returncode) == (status, 0), ran.stderr
    assert (place / "step.md").read_text().startswith(headline)
    assert len(list(place.glob("found/*.py"))) == status
    assert len(list(place.glob("nights/*/report.html"))) == 1


def test_the_second_night_of_the_workflow_says_what_is_fixed(place: Path) -> None:
    night, summary = steps("schedule")
    clean = (place / "python" / "sglang" / "__init__.py").read_text()
    break_decode(place / "python")
    assert shell(place, night.replace("$(date +%F)", "2000-01-01")).returncode == 1
    (place / "python" / "sglang" / "__init__.py").write_text(clean)
    ran = shell(place, night)
    assert (ran.returncode, shell(place, summary).returncode) == (0, 0), ran.stderr
    assert "**0** new · **0** known · **1** fixed since" in (place / "step.md").read_text()


@pytest.mark.parametrize(("broken", "status", "state"), [("", 0, ""), ("python", 1, "new"), ("both", 0, "unchanged")])
def test_the_pull_request_of_the_workflow_fails_on_what_is_new_alone(
    place: Path, broken: str, status: int, state: str
) -> None:
    for name in {"": (), "python": ("python",), "both": ("python", "released")}[broken]:
        break_decode(place / name)
    contrast, summary = steps("pull_request")
    ran = shell(place, contrast)
    assert (ran.returncode, shell(place, summary).returncode) == (status, 0), ran.stderr
    assert state in (place / "step.md").read_text()
    assert len(list(place.glob("found/*.py"))) == status


def test_the_line_of_cron(place: Path) -> None:
    (line,) = re.findall(r"^0 2 \* \* \*  (.*)$", README, re.MULTILINE)
    assert not re.search(r"(?<!\\)%", line)  # cron would take the rest for the command's input
    command = (
        line.replace("\\%", "%").replace("/path/to/seamripper", str(place)).replace("/path/to/bin", str(place / "bin"))
    )
    break_decode(place / "released")
    ran = subprocess.run(
        ["sh", "-c", command],
        env={"PATH": "/usr/bin:/bin", "HOME": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout.splitlines()[0][:13]) == (1, "1 new finding"), ran.stderr
    assert len(list(place.glob("found/*.py"))) == 1
