"""Saved programs are read, never run, and what is wrong with one is said in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.finding import Signature
from fuzz.program import Decode, Extend, Program, ProgramError, Row
from fuzz.repro import read_program, read_repro, repros_in
from stubs.world import World

PROGRAM = Program(World(), (Extend((Row(0, 3),)), Decode((0,))), seed=4)
SIGNATURE = "contract/AttributeError/Wrapper.field"
SCRIPT = f'''"""What breaks."""
import sys
SIGNATURE = "{SIGNATURE}"
FOUND_ON: str = "pypi:1.2"
PROGRAM = """\\
{PROGRAM.text}"""
'''


def write(tmp_path: Path, text: str, name: str = "repro.py") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_script(tmp_path: Path) -> None:
    repro = read_repro(write(tmp_path, SCRIPT))
    assert repro.program == PROGRAM
    assert repro.signature == Signature("contract", "AttributeError", "Wrapper.field")
    assert repro.found_on == "pypi:1.2"


@pytest.mark.parametrize(
    ("line", "reliability"),
    [
        ("Found on x; seen on x, y; shown in 7 of 10 runs; sglang 1.", (7, 10)),
        ("Found on x; seen on x; shown in 10 of 10 runs, 3 of 3 under the real runner; sglang 1.", (10, 10)),
        ("Found on x; seen on x; shown in 4 of 3 runs; sglang 1.", (0, 0)),
        ("What breaks.", (0, 0)),
    ],
)
def test_reliability_is_in_the_docstring(tmp_path: Path, line: str, reliability: tuple[int, int]) -> None:
    repro = read_repro(write(tmp_path, SCRIPT.replace("What breaks.", f"What breaks.\n\n{line}\n")))
    assert (repro.shown, repro.runs) == reliability


def test_program_file(tmp_path: Path) -> None:
    assert read_program(write(tmp_path, PROGRAM.text, "any.jsonl")) == (PROGRAM, None)


def test_script_is_not_run(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    path = write(tmp_path, SCRIPT + f"open({str(flag)!r}, 'w').close()\nraise SystemExit(1)\n")
    assert read_program(path)[0] == PROGRAM
    assert not flag.exists()


def test_call_in_place_of_a_string_is_not_run(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    path = write(tmp_path, f"\nPROGRAM = str(open({str(flag)!r}, 'w'))\n")
    with pytest.raises(ProgramError, match="repro.py: line 2: PROGRAM is no plain string"):
        read_program(path)
    assert not flag.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "has no constant PROGRAM; expected a repro script that seamripper wrote"),
        ("def f():\n    PROGRAM = 'inner'\n", "has no constant PROGRAM"),
        ("PROGRAM = 3\n", "line 1: PROGRAM is no plain string"),
        ("PROGRAM = '''{}'''\n", 'line 1: expected a header with "seamripper": 1'),
        ("PROGRAM = (\n", "is not Python"),
        ("PROGRAM = " + "(" * 5000 + "\n", "is not Python"),
        (SCRIPT.replace(SIGNATURE, "nonsense"), "SIGNATURE is 'nonsense'; expected ORACLE/KIND/PLACE"),
        (SCRIPT.replace('{"op":"extend"', '{"op":"fly"'), "op is 'fly'; expected one of"),
        (f"PROGRAM = {Program(World(), (Decode((0,)),)).text!r}\n", "op 0 (decode)"),
        ("#" * (1 << 20) + "\n", "has more than 1048576 bytes"),
    ],
)
def test_bad_script_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ProgramError) as caught:
        read_program(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProgramError, match="is not UTF-8 text"):
        read_program(path)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"gone.py: cannot be read \(No such file or directory\)"):
        read_program(tmp_path / "gone.py")


def test_folder_means_its_scripts_by_name(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "README.md"):
        (tmp_path / name).write_text("")
    assert [path.name for path in repros_in(tmp_path)] == ["a.py", "b.py"]


def test_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="gone does not exist; expected a repro script"):
        repros_in(tmp_path / "gone")
