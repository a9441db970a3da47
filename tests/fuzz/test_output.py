"""A worker's output as its parent sees it."""

from __future__ import annotations

from pathlib import Path

from fuzz.output import size, tail, trim


def test_size_of_what_is_not_there_is_0(tmp_path: Path) -> None:
    assert (size(tmp_path / "gone"), tail(tmp_path / "gone", 0, 10)) == (0, "")


def test_tail_is_what_came_after_start(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before after")
    assert tail(tmp_path / "log", 7, 100) == "after"


def test_tail_is_cut_to_the_last_bytes(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789\xff")
    assert tail(tmp_path / "log", 0, 3) == "89\ufffd"


def test_trim_empties_only_what_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("0123456789")
    assert trim(tmp_path / "log", 10) == 10
    assert trim(tmp_path / "log", 9) == 0
    assert (tmp_path / "log").read_text() == ""
