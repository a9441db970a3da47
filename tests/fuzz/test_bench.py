"""Mutants of a toy release from choice to verdict, with the fake executor in place of the real one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.bench import BenchOptions, Result, bench, by_oracle
from fuzz.mutants import Mutant
from fuzz.order import CampaignError
from fuzz.targets import TargetError
from tests.fuzz.conftest import FAKE_EXECUTOR, MakeTarget

WATCHING = "tests.fuzz.watching_executor"
FILE = "sglang/srt/layers/attention/toy_backend.py"
# The toy's fault shows in decode steps alone, and only where the sum is no longer 3.
CODE = """
def attend(kind):
    total = add(1, 2)
    if kind == "decode" and total != 3:
        raise ArithmeticError(total)


def add(a, b):
    return a + b
"""
ENTRY = "from sglang.srt.layers.attention.toy_backend import attend\n\n\ndef step(kind, seed):\n    attend(kind)\n"
SUM_LINE = 9


def toy(make_target: MakeTarget, code: str = CODE, entry: str = ENTRY) -> Path:
    folder = make_target(entry)
    (folder / FILE).parent.mkdir(parents=True)
    for package in ("srt", "srt/layers", "srt/layers/attention"):
        (folder / "sglang" / package / "__init__.py").touch()
    (folder / FILE).write_text(code)
    return folder


def options(target: str, out: Path, mutants: int = 3, seconds: float = 0.3) -> BenchOptions:
    return BenchOptions(
        target, out, sys.executable, mutants, seconds=seconds, executor=FAKE_EXECUTOR, watching=WATCHING
    )


def quiet(text: str) -> None:
    """Nobody is told."""


def test_a_fault_in_what_runs_is_detected(make_target: MakeTarget, tmp_path: Path) -> None:
    results = bench(options(f"path:{toy(make_target)}", tmp_path / "out", mutants=100), quiet)
    sums = [result for result in results if result.mutant.line == SUM_LINE]
    assert {(result.mutant.operator, result.state, result.signature) for result in sums} == {
        ("sign", "detected", "contract/ArithmeticError/attend"),
        ("dropped operand", "detected", "contract/ArithmeticError/attend"),
    }
    swapped = next(result for result in results if result.mutant.operator == "arguments swapped")
    assert (swapped.state, swapped.signature) == ("survived", "")
    assert "-    total = add(1, 2)\n+    total = add(2, 1)" in swapped.diff


def test_what_the_release_shows_itself_is_no_detection(make_target: MakeTarget, tmp_path: Path) -> None:
    folder = toy(make_target, "def attend(kind):\n    g(1)\n    raise ValueError\n\n\ndef g(a):\n    pass\n")
    results = bench(options(f"path:{folder}", tmp_path / "out"), quiet)
    assert {result.state for result in results} == {"survived"}


def test_a_fault_is_not_hidden_by_one_like_it_in_other_programs(make_target: MakeTarget, tmp_path: Path) -> None:
    code = CODE.replace('kind == "decode" and total != 3', '(kind == "decode" and total != 3) or kind == "mixed"')
    asked = options(f"path:{toy(make_target, code)}", tmp_path / "out", mutants=100, seconds=2)
    results = bench(asked, quiet)
    known = json.loads((tmp_path / "out/baseline.json").read_text())["signatures"]
    assert known == ["contract/ArithmeticError/attend"]
    assert {result.state for result in results if result.mutant.line == SUM_LINE} == {"detected"}


def test_results_are_kept_and_taken_up_again(make_target: MakeTarget, tmp_path: Path) -> None:
    asked = options(f"path:{toy(make_target)}", tmp_path / "out", mutants=2)
    first = bench(asked, quiet)
    said: list[str] = []
    assert bench(asked, said.append) == first
    assert said == [f"getting {asked.target}"]
    assert len((tmp_path / "out/mutants.jsonl").read_text().splitlines()) == 2


def test_another_bench_in_the_same_folder_is_refused(make_target: MakeTarget, tmp_path: Path) -> None:
    target = f"path:{toy(make_target)}"
    bench(options(target, tmp_path / "out", mutants=1), quiet)
    with pytest.raises(CampaignError, match="is of another bench; give this one another --out"):
        bench(replace(options(target, tmp_path / "out", mutants=1), seed=1), quiet)


def test_an_installed_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="target 'installed' cannot be copied; expected pypi:VERSION"):
        bench(options("installed", tmp_path / "out"), quiet)


MUTANT = Mutant(FILE, SUM_LINE, "add", "sign", 0, 5, "a + b", "(a) - (b)")


def result(state: str, signature: str = "") -> Result:
    return Result(0, MUTANT, state, signature, "", 1.5, 2, (), "")


def test_by_oracle_counts_the_detected() -> None:
    found = [result("detected", "numeric/a/b"), result("detected", "bounds/a/b"), result("detected", "numeric/c/d")]
    assert by_oracle([result("survived"), *found]) == {"numeric": 2, "bounds": 1}


def test_a_result_comes_back_from_its_line() -> None:
    made = result("detected", "numeric/a/b")
    assert Result.from_json(json.loads(json.dumps(made.to_json()))) == made
