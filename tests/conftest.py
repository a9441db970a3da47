"""What tests of several rooms share: releases of SGLang, and the markers that say what a test needs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fuzz.launch import WorkerOptions
from fuzz.process import WorkerProcess
from fuzz.targets import TargetError, resolve
from fuzz.worker import EXECUTOR

RealWorker = Callable[..., WorkerProcess]

# Read when triton.language is first imported, by whichever test that is; kernels for a GPU are compiled.
if not os.environ.get("SEAMRIPPER_REQUIRE_GPU"):
    os.environ["TRITON_INTERPRET"] = "1"

# A shell starts background jobs with SIGINT ignored, and Python then raises no KeyboardInterrupt: tests send one.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def target_folder() -> Callable[[str], Path]:
    """A function from a version to the folder of that release, downloaded into the cache once.

    Where it cannot be had the test is skipped, but under CI it fails: there, nothing goes untested unnoticed.
    """

    def folder_of(version: str) -> Path:
        try:
            folder = resolve(f"pypi:{version}").folder
        except TargetError as error:
            if os.environ.get("CI"):
                pytest.fail(f"{error} (CI is set, so this is a failure)")
            pytest.skip(str(error))
        assert folder is not None
        return folder

    return folder_of


@pytest.fixture(scope="session")
def real_worker(target_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealWorker]:
    """``real_worker(version, executor=...)``: a worker on that release, imported once for the whole session."""
    workers: dict[tuple[str, str], WorkerProcess] = {}

    def worker_for(version: str, executor: str = EXECUTOR) -> WorkerProcess:
        if (version, executor) not in workers:
            options = WorkerOptions(
                sys.executable, target_folder(version), tmp_path_factory.mktemp("worker"), executor=executor
            )
            workers[version, executor] = WorkerProcess(options)
        return workers[version, executor]

    yield worker_for
    for worker in workers.values():
        worker.close()
