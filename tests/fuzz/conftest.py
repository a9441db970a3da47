"""Targets made on the spot, workers and campaigns that run them with the fake executor, and where targets come from."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import CampaignOptions
from fuzz.launch import WorkerOptions
from fuzz.process import WorkerProcess
from fuzz.program import Decode, Extend, Program, Row
from stubs.world import World
from tests.fuzz.campaign_log import FAKE_EXECUTOR, campaign, write_target
from tests.fuzz.origins import make_checkout, write_wheel

CLEAN = "def step(kind, seed):\n    pass\n"

MakeTarget = Callable[..., Path]
MakeWorker = Callable[..., WorkerProcess]


@pytest.fixture
def make_target(tmp_path: Path) -> MakeTarget:
    """``make_target(source, name="target")``: a folder that holds ``sglang/__init__.py`` with this source."""

    def make(source: str = CLEAN, name: str = "target", version: str = "9.1") -> Path:
        return write_target(tmp_path / name, textwrap.dedent(source), version)

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


@pytest.fixture
def options(tmp_path: Path, make_target: MakeTarget) -> Callable[..., CampaignOptions]:
    """``options(source, **fields)``: twelve programs on a target with this source, unless told otherwise."""

    def make(source: str = CLEAN, **fields: Any) -> CampaignOptions:
        return campaign(tmp_path, make_target(source), **fields)

    return make


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved program file."""
    path = tmp_path / "saved.jsonl"
    path.write_text(Program(World(), (Extend((Row(0, 3),)), Decode((0,)))).text)
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all pip may look in, with one release, 9.9.0."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    write_wheel(folder, "9.9.0")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with tags: v1 has python/sglang, v2 has sglang at the root, v3 has neither."""
    make_checkout(tmp_path / "checkout")
    return tmp_path / "checkout"
