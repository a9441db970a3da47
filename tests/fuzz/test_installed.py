"""Finding an interpreter's SGLang without importing it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fuzz.installed import installed_folder
from fuzz.targets import TargetError
from tests.fuzz.conftest import MakeTarget


def test_the_folder_is_found_and_nothing_imported(make_target: MakeTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_target("raise SystemExit('imported')")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    assert installed_folder(sys.executable) == folder


def test_no_sglang_is_said_so(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    with pytest.raises(TargetError, match="has no sglang; install it there, or use pypi:VERSION or path:DIR"):
        installed_folder(str(python))


def test_no_interpreter_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="does not run .* give --python an interpreter"):
        installed_folder(str(tmp_path / "absent"))
