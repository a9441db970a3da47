"""What tests of several rooms share: releases of SGLang, and the markers that say what a test needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.targets import TargetError, resolve


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
