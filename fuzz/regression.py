"""A pytest plugin: each saved repro script is a test of its own on each target; none is ever imported.

    pytest -p fuzz.regression repros/ --target pypi:0.5.23

Every ``*.py`` in a folder named ``repros`` (ini option ``repro_folders``) is a script. ``expected.toml`` beside them
says what each does on which release (``fuzz.expected``): a fault that is known there is an expected failure.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fuzz.comparison import Cell
from fuzz.expected import FILE, Expectations, Expected, judge, read_expected
from fuzz.program import ProgramError
from fuzz.revisions import Rig
from fuzz.revisions.column import Answer, Ask, Column, run_column
from fuzz.revisions.compare import script_clean_runs
from fuzz.revisions.rig import Saved, device_of, read_saved
from fuzz.revisions.sample import FLAKY_RUNS, clean_runs_for
from fuzz.targets import TargetError

RELEASE = "pypi:"


class Changed(Exception):
    """The script does not do what is expected of it."""


class NotTold(Exception):
    """The run says nothing about SGLang: the target cannot be had or imported, or the harness is behind it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("seamripper", "saved repros of SGLang as tests")
    group.addoption(
        "--target",
        metavar="SPEC",
        action="append",
        default=[],
        help="SGLang to run repro scripts on; may be repeated (default: the releases that expected.toml names)",
    )
    group.addoption("--as", metavar="VERSION", dest="as_release", help="expect what is expected of this release")
    group.addoption("--times", metavar="N", type=int, default=1, help="runs of each script, more where chance plays")
    group.addoption("--targets-at-once", metavar="N", type=int, default=1, help="targets to run side by side")
    parser.addini("repro_folders", "names of folders in which every *.py is a repro script", "args", ["repros"])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a CUDA GPU")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """In place of whatever else would collect the script: a Python file named on the command line is imported."""
    others = yield
    if file_path.suffix != ".py" or file_path.parent.name not in parent.config.getini("repro_folders"):
        return others
    return [ReproFile.from_parent(parent, path=file_path)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Target by target, in the order in which they are first named: each is imported once."""
    targets = list(dict.fromkeys(item.target for item in items if isinstance(item, ReproItem)))
    places = [place for place, item in enumerate(items) if isinstance(item, ReproItem)]
    ours = sorted((items[place] for place in places), key=lambda item: targets.index(item.target))  # type: ignore[attr-defined]
    for place, item in zip(places, ours, strict=True):
        items[place] = item


def pytest_sessionfinish(session: pytest.Session) -> None:
    runs = session.config.stash.get(RUNS, None)
    if runs is not None:
        runs.close()


class ReproFile(pytest.File):
    """One script: a test for each target."""

    def collect(self) -> Iterator[ReproItem]:
        try:
            saved = read_saved(self.path)
            expectations = read_expected(self.path.with_name(FILE))
        except ProgramError as error:
            raise self.CollectError(str(error)) from None
        named = self.config.getoption("target") or _releases(saved, expectations)
        for target in dict.fromkeys(named):
            item = ReproItem.from_parent(self, name=target, saved=saved, expectations=expectations)
            if device_of([saved]) == "cuda":
                item.add_marker("gpu")
            yield item


class ReproItem(pytest.Item):
    """One script on one target."""

    def __init__(self, *, saved: Saved, expectations: Expectations, **named: Any) -> None:
        super().__init__(**named)
        self.saved, self.expectations, self.target = saved, expectations, self.name
        self.cell: Cell | None = None

    def setup(self) -> None:
        """Have it run; what says nothing about SGLang is an error, not a failure."""
        answer = _runs(self.session).answer(self)
        self.cell = answer.cell(self.target)
        outcome, why = judge(self.cell, self.expected(self.cell))
        if outcome == "error":
            raise NotTold(why)

    def runtest(self) -> None:
        assert self.cell is not None
        outcome, why = judge(self.cell, self.expected(self.cell))
        if outcome == "skipped":
            pytest.skip(why)
        if outcome == "xfailed":
            pytest.xfail(why)  # returns under --runxfail
        if outcome != "passed":
            raise Changed(why)

    def ask(self) -> Ask:
        """Enough runs that a fault which shows rarely is not taken for gone."""
        known = self.expectations.by_script.get(self.path.stem, {}).values()
        shown = [(one.k, one.n) for one in known if one.state == "bug"]
        repro = self.saved.repro
        clean_runs = max(script_clean_runs(self.saved), clean_runs_for((repro.shown, repro.runs), shown))
        return Ask(self.saved, self.config.getoption("times"), min(clean_runs, FLAKY_RUNS))

    def expected(self, cell: Cell) -> Expected | None:
        release = self.config.getoption("as_release") or cell.sglang_version
        return expected_of(self.saved, self.target, release, self.expectations)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, (Changed, NotTold)):
            return super().repr_failure(excinfo, style)
        again = shlex.join(["seamripper", "replay", str(self.path), "--target", self.target])
        return f"{excinfo.value}\n{self.saved.repro.signature or ''}\nagain: {again}"

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.stem} on {self.target}"


class _Runs:
    """The columns of a session: one a target, all its scripts in one worker, begun before anybody asks for them."""

    def __init__(self, items: list[ReproItem], rig: Rig, jobs: int) -> None:
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(jobs)
        self._rows: dict[tuple[str, Path], int] = {}
        self._columns: dict[str, Future[Column]] = {}
        by_target: dict[str, list[ReproItem]] = {}
        for item in items:
            column = by_target.setdefault(item.target, [])
            self._rows[item.target, item.path] = len(column)
            column.append(item)
        for number, (target, column) in enumerate(by_target.items()):
            asks = [item.ask() for item in column]
            self._columns[target] = self._pool.submit(run_column, target, asks, rig, self._stop, number)

    def answer(self, item: ReproItem) -> Answer:
        """Raises NotTold where the target cannot be had."""
        try:
            column = self._columns[item.target].result()
        except TargetError as error:
            raise NotTold(str(error)) from None
        return column.answers[self._rows[item.target, item.path]]

    def close(self) -> None:
        """End what is still running."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)


RUNS = pytest.StashKey[_Runs]()


def _runs(session: pytest.Session) -> _Runs:
    if RUNS not in session.config.stash:
        items = [item for item in session.items if isinstance(item, ReproItem)]
        session.config.stash[RUNS] = _Runs(items, rig(), session.config.getoption("targets_at_once"))
    return session.config.stash[RUNS]


def rig() -> Rig:
    """What the scripts are run with: this interpreter, and no results of earlier runs."""
    return Rig()


def expected_of(saved: Saved, target: str, release: str, expectations: Expectations) -> Expected | None:
    """What is known of the release; of the one that a script names as found on, that the fault shows there."""
    known = expectations.get(saved.path.stem, release)
    found_on = saved.repro.found_on or ""
    if known is None and target == found_on and found_on.startswith(RELEASE):
        return Expected("bug")
    return known


def _releases(saved: Saved, expectations: Expectations) -> list[str]:
    """The targets that are known for a script: its releases in expected.toml, else the one it was found on."""
    known = [f"{RELEASE}{release}" for release in expectations.releases(saved.path.stem)]
    return known or [saved.repro.found_on or "installed"]
