"""Places in SGLang, told from stacks as text."""

from __future__ import annotations

from pathlib import Path
from traceback import FrameSummary

import pytest

from fuzz.place import innermost, innermost_in_dump, is_sglang, qualified

SOURCE = """\
import os

if os:
    class Backend:
        def forward(self):
            def inner():
                return 1
            return inner()

def plain():
    return 2

top = 3
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    """A module of a package ``sglang``; lines 7 and 8 are in Backend.forward, 11 in plain."""
    folder = tmp_path / "sglang" / "srt"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    (folder / "backend.py").write_text(SOURCE)
    return str(folder / "backend.py")


@pytest.fixture
def other(tmp_path: Path) -> str:
    path = tmp_path / "other.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.mark.parametrize(
    ("line", "name"), [(8, "Backend.forward"), (7, "Backend.forward.inner"), (11, "plain"), (13, ""), (99, "")]
)
def test_qualified(module: str, line: int, name: str) -> None:
    assert qualified(module, line) == name


def test_qualified_of_a_file_that_is_gone_or_no_python(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def (")
    assert qualified(str(tmp_path / "bad.py"), 1) == ""
    assert qualified(str(tmp_path / "gone.py"), 1) == ""


def test_innermost_is_the_last_frame_in_sglang(module: str, other: str) -> None:
    frames = [FrameSummary(module, 11, "plain"), FrameSummary(module, 8, "forward"), FrameSummary(other, 11, "plain")]
    assert innermost(frames) == "Backend.forward"


def test_no_frame_in_sglang(other: str) -> None:
    assert innermost([FrameSummary(other, 11, "plain")]) == ""


def test_folder_named_sglang_that_is_no_package_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "sglang" / ".venv" / "torch").mkdir(parents=True)
    path = tmp_path / "sglang" / ".venv" / "torch" / "nn.py"
    path.write_text(SOURCE)
    assert not is_sglang(str(path))


def test_module_named_sglang_is_not_the_package() -> None:
    assert not is_sglang("/somewhere/stubs/sglang.py")


def dump(heading: str, *frames: tuple[str, int, str]) -> str:
    lines = [f'  File "{name}", line {line} in {function}' for name, line, function in frames]
    return "\n".join([f"{heading} (most recent call first):", *lines, ""])


def test_dump_names_the_frame_of_the_running_thread(module: str, other: str) -> None:
    text = dump("Thread 0x01", (module, 11, "plain")) + "\n"
    text += dump("Current thread 0x02", (other, 11, "plain"), (module, 8, "forward"), (module, 11, "plain"))
    assert innermost_in_dump("Fatal Python error: Segmentation fault\n\n" + text) == "Backend.forward"


def test_thread_beside_the_running_one_is_not_blamed(module: str, other: str) -> None:
    text = dump("Current thread 0x02", (other, 11, "plain")) + "\n" + dump("Thread 0x01", (module, 11, "plain"))
    assert innermost_in_dump(text) == ""


def test_dump_without_a_running_thread_names_the_first_in_sglang(module: str, other: str) -> None:
    text = dump("Thread 0x01", (other, 11, "plain")) + "\n" + dump("Thread 0x02", (module, 8, "forward"))
    assert innermost_in_dump(text) == "Backend.forward"


def test_empty_dump() -> None:
    assert innermost_in_dump("") == ""
