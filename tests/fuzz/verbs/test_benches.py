"""`seamripper bench`: what it hands on, prints and refuses; the hunt for bugs and the bench of mutants are replaced."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import bench
from fuzz.__main__ import main
from fuzz.hunt import HuntOptions, Say
from fuzz.hunted import Hunted
from fuzz.known_bugs import KnownBug
from fuzz.mutants import Mutant
from fuzz.verbs import benches

BUG = KnownBug("A1", "off by one", "PR #1", "pypi:0.5.16", "pypi:0.5.17", "sum is off")
LATENT = KnownBug("A2", "not forwarded", "PR #2", "pypi:0.5.16", "pypi:0.5.17", "Wrapper.name", "audit")
LIST = """
[[bug]]
id = "A1"
title = "off by one"
reference = "PR #1"
present = "0.5.16"
fixed = "0.5.17"
match = "sum is off"
"""


@pytest.fixture
def bugs(tmp_path: Path) -> str:
    path = tmp_path / "bugs.toml"
    path.write_text(LIST)
    return str(path)


def found(monkeypatch: pytest.MonkeyPatch, *results: Hunted) -> list[HuntOptions]:
    """Have the hunt answer ``results``; the options it was given."""
    seen: list[HuntOptions] = []

    def hunt(options: HuntOptions, say: Say) -> list[Hunted]:
        seen.append(options)
        return list(results)

    monkeypatch.setattr(benches, "run_hunt", hunt)
    return seen


DETECTED = Hunted(BUG, 0, 60.0, "detected", "numeric", "numeric/a/B.c", "t", 12, 8.4, 3, script="x.py", exits=(1, 0))
MISSED = Hunted(LATENT, 0, 60.0, "missed", "audit")


def test_a_row_for_each_bug_and_the_total(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, bugs: str
) -> None:
    found(monkeypatch, DETECTED, MISSED)
    assert main(["bench", "--bugs", bugs, "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["A1", "detected", "1/1", "12", "8", "3", "numeric", "numeric/a/B.c", "1", "/", "0"]
    assert lines[2].split() == ["A2", "missed", "0/1", "–", "–", "–", "audit", "–", "–"]
    assert lines[-1] == "1 of 2 known bugs detected (numeric 1)"


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, bugs: str) -> None:
    found(monkeypatch, DETECTED, MISSED)
    main(["bench", "--bugs", bugs, "--out", str(tmp_path), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert (answer["detected"], answer["total"]) == (1, 2)
    assert [(bug["id"], bug["state"], bug["programs"]) for bug in answer["bugs"]] == [
        ("A1", "detected", 12),
        ("A2", "missed", None),
    ]


def test_options_are_handed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bugs: str) -> None:
    seen = found(monkeypatch, DETECTED)
    words = ["--seconds", "5", "--seeds", "3", "--workers", "2", "--pair", "a:b", "--repros", str(tmp_path / "r")]
    main(["bench", "--bugs", bugs, *words, "--out", str(tmp_path)])
    (options,) = seen
    assert (options.bugs, options.out, options.python) == ((BUG,), tmp_path, sys.executable)
    assert (options.seconds, options.seeds, options.workers) == (5.0, 3, 2)
    assert (options.pairs, options.repros) == (("a:b",), tmp_path / "r")


def test_two_minutes_and_one_seed_are_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bugs: str) -> None:
    seen = found(monkeypatch, DETECTED)
    main(["bench", "--bugs", bugs, "--out", str(tmp_path)])
    assert (seen[0].seconds, seen[0].seeds) == (120.0, 1)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "expected one of --mutants N and --bugs FILE"),
        (["--mutants", "1", "--bugs", "LIST"], "expected one of --mutants N and --bugs FILE"),
        (["--bugs", "LIST", "--target", "pypi:0.5.23"], "--target goes with --mutants alone"),
        (["--bugs", "LIST", "--seed", "1"], "--seed goes with --mutants alone"),
        (["--mutants", "1", "--seeds", "2"], "--seeds goes with --bugs alone"),
    ],
)
def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], bugs: str, words: list[str], line: str) -> None:
    given = [bugs if word == "LIST" else word for word in words]
    assert main(["bench", *given]) == 2
    assert capsys.readouterr().err == f"seamripper: {line}; see seamripper bench --help\n"


def test_a_bad_list_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "bugs.toml"
    path.write_text(LIST.replace("match", "mach"))
    assert main(["bench", "--bugs", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"seamripper: {path}: bug 1: has a field 'mach'; expected id, title")


def bench_results() -> list[bench.Result]:
    mutant = Mutant("sglang/a.py", 7, "f", "comparison", 0, 5, "a < b", "a <= b")
    survived = bench.Result(0, mutant, "survived", "", "", 60.0, 90, (), "-a < b\n+a <= b")
    detected = replace(survived, number=1, state="detected", signature="numeric/wrong_output/A.b", seconds=2.0)
    return [survived, detected]


def test_bench_prints_a_table_and_the_survivors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(benches, "run_bench", lambda options, say: bench_results())
    assert main(["bench", "--mutants", "2", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "mutant 0 survived:\n-a < b\n+a <= b\n" in out
    assert out.endswith("1 of 2 mutants detected (numeric 1)\n")


def test_bench_hands_its_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[bench.BenchOptions] = []

    def remember(options: bench.BenchOptions, say: bench.Say) -> list[bench.Result]:
        seen.append(options)
        return []

    monkeypatch.setattr(benches, "run_bench", remember)
    words = [
        "--target",
        "path:x",
        "--mutants",
        "3",
        "--seed",
        "4",
        "--seconds",
        "5",
        "--pair",
        "triton:fa3",
        "fa3:triton",
    ]
    assert main(["bench", *words, "--out", str(tmp_path)]) == 0
    assert seen == [bench.BenchOptions("path:x", tmp_path, sys.executable, 3, 4, 5.0, ("triton:fa3", "fa3:triton"))]


def test_bench_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(benches, "run_bench", lambda options, say: bench_results())
    assert main(["bench", "--mutants", "2", "--out", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["by_oracle"] == {"numeric": 1}
    assert [mutant["state"] for mutant in answer["mutants"]] == ["survived", "detected"]
