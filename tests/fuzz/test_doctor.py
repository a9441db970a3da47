"""The doctor: what it says of targets that cannot be used, and of a real release."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.doctor import Backend, Part, Report, diagnose, to_table_rows
from fuzz.target import Target


def report(**changes: object) -> Report:
    fields = {
        "target": "installed",
        "python": "/usr/bin/python3",
        "versions": {"python": "3.11.7", "sglang": ""},
        "parts": (Part("GPU", "absent", "on the CPU"),),
        "backends": (Backend("triton", ""), Backend("fa4", "ImportError: no")),
        "error": "",
        "seconds": 1.0,
    }
    return Report(**{**fields, **changes})  # type: ignore[arg-type]


def target(folder: Path) -> Target:
    return Target(f"path:{folder}", folder, "t", None)


def test_rows_go_from_versions_to_backends() -> None:
    assert to_table_rows(report()) == [
        ("python", "3.11.7", ""),
        ("sglang", "-", ""),
        ("GPU", "absent", "on the CPU"),
        ("backend triton", "can be built", ""),
        ("backend fa4", "cannot be built", "ImportError: no"),
    ]


def test_rows_end_with_the_error() -> None:
    assert to_table_rows(report(backends=(), error="ImportError: gone"))[-1] == (
        "target",
        "cannot run",
        "ImportError: gone",
    )


@pytest.mark.parametrize(
    ("changes", "is_usable"),
    [({}, True), ({"error": "x"}, False), ({"backends": (Backend("fa4", "no"),)}, False), ({"backends": ()}, False)],
)
def test_usable_means_that_a_backend_can_be_built(changes: dict[str, object], is_usable: bool) -> None:
    assert report(**changes).is_usable is is_usable


def test_json_names_every_backend() -> None:
    assert report().to_json()["backends"] == {"triton": "", "fa4": "ImportError: no"}


def test_interpreter_that_is_not_there(tmp_path: Path) -> None:
    assert diagnose(target(tmp_path), "/no/such/python").error == (
        "cannot start /no/such/python: No such file or directory; give --python an interpreter"
    )


def test_child_that_dies_leaves_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch is broken here')")
    assert diagnose(target(tmp_path), sys.executable).error == "torch is broken here"


def test_target_that_does_not_import(tmp_path: Path) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("raise RuntimeError('half a checkout')")
    found = diagnose(target(tmp_path), sys.executable)
    assert (found.error, found.backends, found.is_usable) == ("RuntimeError: half a checkout", (), False)


@pytest.mark.release
def test_release_reports_its_version_and_backends(target_folder: Callable[[str], Path]) -> None:
    found = diagnose(target(target_folder("0.5.16")), sys.executable)
    works = {backend.name for backend in found.backends if not backend.reason}
    assert (found.error, found.versions["sglang"]) == ("", "0.5.16")
    assert {"triton", "torch_native", "flex_attention", "fa3"} <= works
