"""Saved repros as tests, on targets of a few lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import regression
from fuzz.expected import Expectations, Expected
from fuzz.program import Decode, Extend, Program, Row
from fuzz.revisions import Rig
from fuzz.revisions.rig import read_saved
from stubs.world import World
from tests.fuzz.conftest import CLEAN, FAKE_EXECUTOR, MakeTarget

pytest_plugins = ["pytester"]

PROGRAM = Program(World(), (Extend((Row(0, 3),)), Decode((0,))))
ON_DECODE = """
class Gap(Exception): pass
class Refusal(Exception): pass
runs = []
def step(kind, seed):
    if kind == "decode":
        {}
"""
BUG = ON_DECODE.format("raise KeyError('x')")
OTHER = ON_DECODE.format("raise TypeError('x')")
GAP = ON_DECODE.format("raise Gap('lacks field')")
REFUSAL = ON_DECODE.format("raise Refusal('page size 4')")
SEVENTH = ON_DECODE.format("runs.append(1)\n        if len(runs) == 7: raise KeyError('x')")

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run(*arguments)``: pytest with the plugin, in a folder that has ``repros/a.py``."""
    monkeypatch.setattr(regression, "rig", lambda: Rig(sys.executable, None, 20.0, FAKE_EXECUTOR))
    save(pytester.path / "repros" / "a.py")
    # Hypothesis would be imported anew in each run.
    options = ["-p", "fuzz.regression", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-rA"]
    return lambda *arguments: pytester.runpytest_inprocess(*options, *arguments)


def save(path: Path, found_on: str = "", body: str = "", program: Program = PROGRAM) -> Path:
    path.parent.mkdir(exist_ok=True)
    constants = f"PROGRAM = {program.text!r}\nSIGNATURE = 'contract/KeyError/step'\nFOUND_ON = {found_on!r}\n"
    path.write_text(f'"""What breaks\n\nFound on x; seen on x; shown in 3 of 3 runs; y.\n"""\n{constants}{body}')
    return path


def expect(pytester: pytest.Pytester, *lines: str) -> None:
    (pytester.path / "repros" / "expected.toml").write_text("\n".join(["[a]", *lines, ""]))


@pytest.mark.parametrize(
    ("source", "expected", "outcomes"),
    [
        (CLEAN, [], {"passed": 1}),
        (CLEAN, ['"9.1" = "clean 0/3"'], {"passed": 1}),
        (CLEAN, ['"9.1" = "bug 3/3"'], {"failed": 1}),
        (BUG, ['"9.1" = "bug 3/3"'], {"xfailed": 1}),
        (BUG, ['"9.0" = "bug 3/3"'], {"failed": 1}),
        (BUG, [], {"failed": 1}),
        (OTHER, [], {"failed": 1}),
        (OTHER, ['"9.1" = "other 3/3 contract/TypeError/step"'], {"xfailed": 1}),
        (REFUSAL, [], {"skipped": 1}),
        (GAP, [], {"errors": 1}),
        (GAP, ['"9.1" = "bug 3/3"'], {"errors": 1}),
        ("raise ImportError('no cutlass')", ['"9.1" = "bug 3/3"'], {"errors": 1}),
    ],
)
def test_outcome(
    run: Run,
    make_target: MakeTarget,
    pytester: pytest.Pytester,
    source: str,
    expected: list[str],
    outcomes: dict[str, int],
) -> None:
    target = make_target(source)
    expect(pytester, *expected)
    run("repros", "--target", f"path:{target}").assert_outcomes(**outcomes)


def test_a_failure_says_what_was_expected_and_how_to_see_it(
    run: Run, make_target: MakeTarget, pytester: pytest.Pytester
) -> None:
    target = f"path:{make_target(BUG)}"
    expect(pytester, '"9.1" = "clean 0/3"')
    result = run("repros", "--target", target)
    result.stdout.fnmatch_lines(
        [
            f"bug 1/1 on {target} (SGLang 9.1); expected clean 0/3: contract/KeyError/step",
            "contract/KeyError/step",
            f"again: seamripper replay */repros/a.py --target {target}",
        ]
    )
    assert result.ret == 1


def test_known_faults_can_be_had_as_failures(run: Run, make_target: MakeTarget, pytester: pytest.Pytester) -> None:
    expect(pytester, '"9.1" = "bug 3/3"')
    run("repros", "--runxfail", "--target", f"path:{make_target(BUG)}").assert_outcomes(failed=1)


def test_a_skip_gives_the_reason_of_the_target(run: Run, make_target: MakeTarget) -> None:
    result = run("repros", "--target", f"path:{make_target(REFUSAL)}")
    result.stdout.fnmatch_lines(["SKIPPED * Refusal at step: page size 4"])


def test_a_target_that_cannot_be_had_is_an_error(run: Run) -> None:
    result = run("repros", "--target", "path:/no/such/folder")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*/no/such/folder is no folder*"])


def test_a_script_is_never_run(run: Run, make_target: MakeTarget, pytester: pytest.Pytester) -> None:
    script = save(pytester.path / "repros" / "a.py", body="open('ran', 'w')\n")
    for given in ("repros", "repros/a.py", str(script)):
        run(given, "--target", f"path:{make_target(CLEAN, name=given.strip('/'))}").assert_outcomes(passed=1)
    assert not list(pytester.path.rglob("ran"))


def test_a_file_that_is_no_script_is_an_error_of_collection(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "repros" / "b.py").write_text("x = 1\n")
    result = run("repros", "--target", "installed", "--collect-only")
    result.stdout.fnmatch_lines(["*b.py: has no constant PROGRAM; expected a repro script that seamripper wrote*"])
    assert result.ret == 2


def test_scripts_elsewhere_are_left_alone(run: Run, pytester: pytest.Pytester) -> None:
    save(pytester.path / "data" / "b.py")
    assert run("data", "--collect-only").ret == 5


def test_a_test_for_each_script_on_each_target_one_import_a_target(
    run: Run, make_target: MakeTarget, pytester: pytest.Pytester, tmp_path: Path
) -> None:
    save(pytester.path / "repros" / "b.py")
    imported = f"open({str(tmp_path / 'log')!r}, 'a').write('x')\n"
    targets = [f"path:{make_target(imported + source, name=name)}" for name, source in (("one", CLEAN), ("two", BUG))]
    result = run("repros", "--target", targets[0], "--target", targets[1])
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines([f"PASSED repros/{name}.py::{targets[0]}" for name in "ab"])
    result.stdout.fnmatch_lines([f"FAILED repros/{name}.py::{targets[1]}*" for name in "ab"])
    assert (tmp_path / "log").read_text() == "xx"


def test_without_a_target_the_releases_that_are_known(run: Run, pytester: pytest.Pytester) -> None:
    expect(pytester, '"0.5.16" = "bug 3/3"', '"0.5.17" = "clean 0/3"')
    save(pytester.path / "repros" / "b.py", found_on="pypi:0.5.20")
    result = run("repros", "--collect-only", "-q")
    assert [line for line in result.outlines if "::" in line] == [
        "repros/a.py::pypi:0.5.16",
        "repros/a.py::pypi:0.5.17",
        "repros/b.py::pypi:0.5.20",
    ]


def test_what_needs_a_gpu_can_be_left_out(run: Run, pytester: pytest.Pytester) -> None:
    save(pytester.path / "repros" / "b.py", program=replace(PROGRAM, world=World(device="cuda")))
    result = run("repros", "--target", "installed", "--collect-only", "-q", "-m", "not gpu")
    assert [line for line in result.outlines if "::" in line] == ["repros/a.py::installed"]


def test_as_a_release(run: Run, make_target: MakeTarget, pytester: pytest.Pytester) -> None:
    target = make_target(BUG, version="0.0.0.dev0")
    expect(pytester, '"9.1" = "bug 3/3"')
    run("repros", "--target", f"path:{target}", "--as", "9.1").assert_outcomes(xfailed=1)


def test_a_fault_that_shows_rarely_is_not_taken_for_gone(
    run: Run, make_target: MakeTarget, pytester: pytest.Pytester
) -> None:
    # 3 of 3 when it was saved and 3 of 9 since allow for one that shows in a third of the runs: 7 runs are not enough.
    target = make_target(SEVENTH)
    expect(pytester, '"9.0" = "bug 3/9"', '"9.1" = "bug 3/9"')
    run("repros", "--target", f"path:{target}").assert_outcomes(xfailed=1)


@pytest.mark.parametrize(
    ("found_on", "target", "expected"),
    [
        ("pypi:9.1", "pypi:9.1", Expected("bug")),
        ("pypi:9.1", "pypi:9.2", None),
        ("git:/x@main", "git:/x@main", None),  # it may have been mended since
    ],
)
def test_on_the_release_it_was_found_on_the_fault_is_expected(
    tmp_path: Path, found_on: str, target: str, expected: Expected | None
) -> None:
    saved = read_saved(save(tmp_path / "r" / "a.py", found_on))
    assert regression.expected_of(saved, target, "9.1", Expectations()) == expected
