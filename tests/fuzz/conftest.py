"""Targets made on the spot: a package ``sglang`` of a few lines, and workers that run it with the fake executor."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fuzz.launch import WorkerOptions
from fuzz.process import WorkerProcess

FAKE_EXECUTOR = "tests.fuzz.fake_executor"
CLEAN = "def step(kind, seed):\n    pass\n"

MakeTarget = Callable[..., Path]
MakeWorker = Callable[..., WorkerProcess]


@pytest.fixture
def make_target(tmp_path: Path) -> MakeTarget:
    """``make_target(source, name="target")``: a folder that holds ``sglang/__init__.py`` with this source."""

    def make(source: str = CLEAN, name: str = "target", version: str = "9.1") -> Path:
        package = tmp_path / name / "sglang"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"__version__ = {version!r}\n{textwrap.dedent(source)}")
        return tmp_path / name

    return make


@pytest.fixture
def make_worker(tmp_path: Path, make_target: MakeTarget) -> Iterator[MakeWorker]:
    """``make_worker(source)``: a worker, not yet launched, on such a target; all are closed at the end."""
    workers: list[WorkerProcess] = []

    def make(source: str = CLEAN, **options: object) -> WorkerProcess:
        folder = make_target(source, name=f"target{len(workers)}")
        fields: dict[str, object] = {"python": sys.executable, "executor": FAKE_EXECUTOR, "number": len(workers)}
        workers.append(WorkerProcess(WorkerOptions(folder=folder, out=tmp_path, **{**fields, **options})))  # type: ignore[arg-type]
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()
