"""Options that take several values, pairs, and the default out folder."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from fuzz.arguments import out_folder, spread


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a --targets x y", "a --targets x --targets y"),
        ("--targets x y z --times 3 a", "--targets x --targets y --targets z --times 3 a"),
        ("--targets=x y", "--targets=x --targets y"),
        ("--targets x -- y", "--targets x -- y"),
        ("--targets x --targets y", "--targets x --targets y"),
        ("--times 3 a b", "--times 3 a b"),
        ("--targets", "--targets"),
        ("", ""),
    ],
)
def test_spread(given: str, expected: str) -> None:
    assert spread(given.split(), {"--targets"}) == expected.split()


def test_out_folder_is_named_by_time_and_target() -> None:
    now = datetime(2026, 3, 4, 5, 6, 7, tzinfo=timezone.utc)
    assert out_folder("pypi:0.5.16", now) == Path("reports/out/20260304T050607Z-pypi-0.5.16")


def test_out_folder_of_a_path_is_one_folder() -> None:
    now = datetime(2026, 3, 4, 5, 6, 7, tzinfo=timezone.utc)
    assert out_folder("git:/a/b@HEAD~1", now) == Path("reports/out/20260304T050607Z-git-a-b-HEAD-1")
