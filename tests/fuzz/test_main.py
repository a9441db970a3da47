"""The command line: what each verb hands on, prints and exits with; a user's mistake is one line and status 2."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz import bench
from fuzz.__main__ import main
from fuzz.audit import AuditReport, Reader
from fuzz.audit import Row as AuditRow
from fuzz.bisection import BisectResult
from fuzz.campaign import CampaignError, CampaignOptions, CampaignResult, Progress, run_campaign
from fuzz.comparison import Cell, CompareResult, Row
from fuzz.confirm import Confirmed
from fuzz.doctor import Backend, Part, Report
from fuzz.finding import Finding, Signature, Verdict
from fuzz.mutants import Mutant
from fuzz.process import WorkerError
from fuzz.program import Decode, Extend, Program, ProgramError, parse
from fuzz.program import Row as ExtendRow
from fuzz.revisions import ReplayResult, Rig, ShrinkResult
from fuzz.store import StoreError
from fuzz.targets import TargetError
from fuzz.verbs import benches, campaigns, inspections, revisits
from stubs.world import World
from tests.fuzz.conftest import FAKE_EXECUTOR, MakeTarget
from tests.reports.sample import FINDING

PROGRAM = Program(World(), (Extend((ExtendRow(0, 3),)), Decode((0,))))
RESULT = CampaignResult(
    findings=[{**FINDING, "known": False}],
    programs=12,
    steps=34,
    exit_code=1,
    out=Path("out"),
    scripts=(Path("repros/a b.py"),),
    interrupted=False,
    reason="",
)


class Campaign:
    """Stands in for run_campaign; remembers its options."""

    def __init__(self, result: CampaignResult) -> None:
        self.result = result
        self.options: CampaignOptions | None = None

    def __call__(self, options: CampaignOptions, progress: Progress) -> CampaignResult:
        self.options = options
        options.out.mkdir(parents=True)
        return replace(self.result, out=options.out)


@pytest.fixture
def campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Campaign:
    made = Campaign(RESULT)
    monkeypatch.setattr(campaigns, "run_campaign", made)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved program file."""
    path = tmp_path / "saved.jsonl"
    path.write_text(PROGRAM.text)
    return path


def mistake(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a verb that must exit 2."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("seamripper: ")
    return err.removeprefix("seamripper: ").rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["frob"], "No such command 'frob'; see seamripper --help"),
        (["run", "surplus"], "Got unexpected extra argument (surplus); see seamripper run --help"),
        (
            ["run", "--seconds", "0"],
            "Invalid value for '--seconds': 0.0 is not in the range x>0; see seamripper run --help",
        ),
        (
            ["run", "--programs", "-1"],
            "Invalid value for '--programs': -1 is not in the range x>=1; see seamripper run --help",
        ),
        (
            ["run", "--pair", "triton:fa3", "triton"],
            (
                "Invalid value for '--pair': 'triton'; expected two backend names, PREFILL:DECODE, "
                "such as triton:torch_native; see seamripper run --help"
            ),
        ),
        (
            ["run", "--runner", "toy"],
            "Invalid value for '--runner': 'toy' is not one of 'fake', 'real'; see seamripper run --help",
        ),
        (
            ["run", "--python", "/absent/python"],
            (
                "Invalid value for '--python': '/absent/python' is no program that can be run; "
                "expected a Python interpreter; see seamripper run --help"
            ),
        ),
        (
            ["replay", "/absent.py"],
            "Invalid value for 'PATH...': Path '/absent.py' does not exist; see seamripper replay --help",
        ),
        (
            ["shrink", "/absent.py"],
            "Invalid value for 'PATH': File '/absent.py' does not exist; see seamripper shrink --help",
        ),
        (["compare", "/"], "Missing option '--targets'; see seamripper compare --help"),
        (
            ["report", "/absent"],
            "Invalid value for 'DIR': Directory '/absent' does not exist; see seamripper report --help",
        ),
    ],
)
def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    assert mistake(capsys, *arguments) == line


@pytest.mark.parametrize("verb", [["run", "--seconds", "5"], ["doctor"], ["audit"]])
def test_a_bad_target_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "target 'frob' is not understood; expected installed, pypi:VERSION, path:DIR or git:DIR@REV"
    assert mistake(capsys, *verb, "--target", "frob") == line


def test_a_bad_release_is_one_line(capsys: pytest.CaptureFixture[str], saved: Path) -> None:
    line = "target 'pypi:latest': 'latest' is no version; expected something like 0.5.16"
    assert mistake(capsys, "replay", str(saved), "--target", "pypi:latest") == line


def test_a_twin_is_refused_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert "triton:triton" in mistake(capsys, "run", "--pair", "triton:triton")


def test_a_bad_program_file_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    assert mistake(capsys, "replay", str(bad)).startswith(f"{bad}: line 1: ")


def test_a_folder_without_scripts_is_no_clean_replay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = f"no repro scripts in {tmp_path}; expected *.py files that `run` saved"
    assert mistake(capsys, "replay", str(tmp_path)) == line


def test_a_message_of_several_lines_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(options: CampaignOptions, progress: Progress) -> CampaignResult:
        raise CampaignError("first\n\tsecond.")

    monkeypatch.setattr(campaigns, "run_campaign", refuse)
    assert mistake(capsys, "run") == "first second"


@pytest.mark.parametrize(
    ("error", "verb", "status"),
    [
        (StoreError("full"), "run", 3),
        (WorkerError("dead"), "run", 3),
        (PermissionError(13, "Permission denied", "/x"), "run", 3),
        (KeyboardInterrupt(), "run", 130),
        (WorkerError("dead"), "replay", 125),
        (StoreError("another bisection"), "bisect", 125),
        (RuntimeError("ours"), "replay", 125),
        (RuntimeError("ours"), "run", 3),
        (TargetError("no such release"), "replay", 2),
        (ProgramError("line 1"), "replay", 2),
    ],
)
def test_exit_status_of_errors(
    monkeypatch: pytest.MonkeyPatch, saved: Path, error: BaseException, verb: str, status: int
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(campaigns, "run_campaign", fail)
    monkeypatch.setattr(revisits.revisions, "replay_all", fail)
    monkeypatch.setattr(revisits.revisions, "bisect_releases", fail)
    given = {"replay": [str(saved)], "bisect": [str(saved), "--releases", "1..2"]}
    assert main([verb, *given.get(verb, [])]) == status


def test_our_own_fault_asks_to_be_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(campaigns, "run_campaign", fail)
    main(["run"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == [
        "RuntimeError: ours",
        "seamripper: this is a fault of seamripper itself; please report it with the lines above",
    ]


def test_no_verb_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    listed = [line.split()[0] for line in out[out.index("Commands:") :].splitlines()[1:] if line]
    verbs = "audit bench bisect compare contrast corpus coverage doctor replay report run shrink support"
    assert listed == verbs.split()


def test_run_hands_its_options_on(campaign: Campaign) -> None:
    line = "run --target path:/x --pair a:b c:d --runner real --programs 9 --workers 2 --seed 5 --no-shrink --twins"
    assert main([*line.split(), "--known", "k", "--repros", "r", "--out", "o"]) == 1
    assert campaign.options == CampaignOptions(
        target="path:/x",
        repros=Path("r"),
        out=Path("o"),
        python=sys.executable,
        pairs=("a:b", "c:d"),
        runner="real",
        programs=9,
        workers=2,
        seed=5,
        known=Path("k"),
        twins=True,
        shrink=False,
    )


def test_run_without_a_budget_takes_a_minute(campaign: Campaign) -> None:
    main(["run"])
    assert campaign.options is not None
    assert (campaign.options.seconds, campaign.options.programs) == (60.0, None)


def test_run_with_programs_alone_has_no_time_limit(campaign: Campaign) -> None:
    main(["run", "--programs", "3"])
    assert campaign.options is not None
    assert campaign.options.seconds is None


@pytest.mark.parametrize("status", [0, 1, 3])
def test_run_exits_as_the_campaign_says(campaign: Campaign, status: int) -> None:
    campaign.result = replace(RESULT, exit_code=status)
    assert main(["run"]) == status


def test_run_says_what_is_new_and_how_to_replay(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "--target", "pypi:0.5.16", "--out", "o"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 new finding in 12 programs, 34 steps"
    assert lines[2].split()[:3] == ["new", "Wrapper", "lacks"]
    assert lines[-2:] == ["replay: seamripper replay 'repros/a b.py' --target pypi:0.5.16", "report: o/report.html"]


def test_run_says_that_it_was_interrupted(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    campaign.result = replace(RESULT, findings=[], scripts=(), exit_code=0, interrupted=True)
    assert main(["run"]) == 0
    assert capsys.readouterr().out.startswith("nothing new in 12 programs, 34 steps (interrupted)\n")


def test_run_says_why_it_could_not(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    campaign.result = replace(RESULT, findings=[], scripts=(), programs=0, steps=0, exit_code=3, reason="no pair")
    assert main(["run"]) == 3
    assert capsys.readouterr().out.startswith("could not run: no pair\n")


def test_run_json_is_all_that_stdout_holds(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--json", "--out", "o"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["exit_code"], answer["new"], answer["programs"], answer["scripts"]) == (1, 1, 12, ["repros/a b.py"])
    assert answer["reports"][-1] == "o/junit.xml"


def test_run_writes_the_command_down(campaign: Campaign) -> None:
    main(["run", "--target", "pypi:0.5.16", "--out", "o"])
    assert json.loads(Path("o/run.json").read_text())["command"] == "seamripper run --target pypi:0.5.16 --out o"


def test_run_without_pandas_keeps_its_findings(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "reports", None)
    assert main(["run", "--out", "o"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "report: o"
    assert "pip install 'seamripper[report]', then `seamripper report o`" in err


def test_report_without_pandas_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "reports", None)
    assert main(["report", str(tmp_path)]) == 3
    assert capsys.readouterr().err.endswith("; pip install 'seamripper[report]'\n")


def test_run_from_end_to_end(
    make_target: MakeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def with_fake_executor(options: CampaignOptions, progress: Progress) -> CampaignResult:
        return run_campaign(replace(options, executor=FAKE_EXECUTOR), progress)

    monkeypatch.setattr(campaigns, "run_campaign", with_fake_executor)
    monkeypatch.chdir(tmp_path)
    target = f"path:{make_target()}"
    assert main(["run", "--target", target, "--programs", "20", "--out", "o"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("nothing new in 20 programs, ")
    assert "SGLang 9.1, fake runner, triton:torch_native" in err
    assert Path("o/summary.md").read_text().startswith("# Nothing new: ")


def replayed(path: Path, state: str) -> ReplayResult:
    finding = Finding(Verdict.BUG, Signature("contract", "E", "A.b"), "A lacks b", "", 1, "decode")
    k = 3 if state == "bug" else 0
    return ReplayResult(path, Cell(str(path), "pypi:1", state, k, 3, "why"), "contract/E/A.b", finding if k else None)


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (["clean"], 0),
        (["bug"], 1),
        (["infra"], 125),
        (["stub_gap"], 125),
        (["unsupported"], 125),
        (["clean", "infra"], 125),
        (["infra", "bug", "clean"], 1),
    ],
)
def test_replay_exits_by_the_worst(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, states: list[str], status: int
) -> None:
    for number, _ in enumerate(states):
        (tmp_path / f"{number}.py").touch()
    monkeypatch.setattr(
        revisits.revisions, "replay_all", lambda paths, *rest: [replayed(p, states[int(p.stem)]) for p in paths]
    )
    assert main(["replay", str(tmp_path)]) == status


def test_replay_hands_its_options_on(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    seen: list[Any] = []

    def replay_all(paths: list[Path], target: str | None, times: int, rig: Rig, tell: object) -> list[ReplayResult]:
        seen.extend([paths, target, times, rig])
        return [replayed(paths[0], "clean")]

    monkeypatch.setattr(revisits.revisions, "replay_all", replay_all)
    main(["replay", str(saved), "--target", "pypi:1", "--times", "7"])
    assert seen == [[saved], "pypi:1", 7, Rig(sys.executable)]


def test_replay_json(monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(revisits.revisions, "replay_all", lambda paths, *rest: [replayed(paths[0], "bug")])
    assert main(["replay", str(saved), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit_code"] == 1
    assert answer["repros"][0]["finding"]["title"] == "A lacks b"


def shrunk(path: Path, confirmed: Confirmed | None) -> ShrinkResult:
    return ShrinkResult(path, "pypi:1", PROGRAM, confirmed, "the bug does not show here: why", "9.1")


SMALLER = Program(World(), (Extend((ExtendRow(0, 1),)),))
SHRUNK = Confirmed(SMALLER, Finding(Verdict.BUG, Signature("contract", "E", "A.b"), "", "", 0, "extend"), 3, 3)


def test_shrink_prints_the_script_alone(
    monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(revisits.revisions, "shrink_path", lambda path, *rest: shrunk(path, SHRUNK))
    monkeypatch.setattr(revisits.answers, "script_of", lambda result: "the script\n")
    assert main(["shrink", str(saved)]) == 0
    out, err = capsys.readouterr()
    assert out == "the script\n"
    assert err == "2 ops before, 1 now\n"


def test_shrink_prints_the_program_where_no_script_can_show_it(
    monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(revisits.revisions, "shrink_path", lambda path, *rest: shrunk(path, SHRUNK))
    assert main(["shrink", str(saved)]) == 0
    assert parse(capsys.readouterr().out) == SMALLER


def test_shrink_says_why_it_could_not(
    monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(revisits.revisions, "shrink_path", lambda path, *rest: shrunk(path, None))
    assert main(["shrink", str(saved)]) == 125
    assert capsys.readouterr().err == f"seamripper: {saved}: the bug does not show here: why\n"


COMPARED = CompareResult(
    ("pypi:1", "pypi:2"),
    (
        Row(
            "repros/a.py",
            "contract/E/A.b",
            (Cell("repros/a.py", "pypi:1", "bug", 3, 3), Cell("repros/a.py", "pypi:2", "fixed", 0, 3)),
        ),
        Row(
            "repros/b.py",
            "contract/E/B.b",
            (Cell("repros/b.py", "pypi:1", "clean", 0, 3), Cell("repros/b.py", "pypi:2", "infra", 0, 0, "no import")),
        ),
    ),
)


def test_compare_prints_the_table_and_the_reasons(
    monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(revisits.revisions, "compare", lambda *given: seen.extend(given) or COMPARED)
    monkeypatch.setenv("SEAMRIPPER_CACHE", "/cache")
    assert main(["compare", str(saved), "--targets", "pypi:1", "pypi:2", "--times", "2", "--workers", "3"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["repro", "pypi:1", "pypi:2", "introduced", "in", "fixed", "in"],
        ["a.py", "bug", "3/3", "≥26", "%", "fixed", "0/3", "≤74", "%", "–", "pypi:2"],
        ["b.py", "clean", "0/3", "≤74", "%", "infra", "0/0", "–", "–"],
        ["pypi:2:", "infra:", "no", "import"],
    ]
    rig = Rig(sys.executable, results=Path("/cache/results"))
    assert seen[:5] == [(saved,), ("pypi:1", "pypi:2"), 2, rig, 3]


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["--repo", "."],
        ["--repo", ".", "--good", "a"],
        ["--repo", ".", "--bad", "a"],
        ["--releases", "1..2", "--good", "a"],
        ["--releases", "1..2", "--repo", ".", "--good", "a", "--bad", "b"],
    ],
)
def test_bisect_searches_releases_or_commits(saved: Path, given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = "expected either --releases FIRST..LAST, or --repo DIR with --good REV and --bad REV"
    assert mistake(capsys, "bisect", str(saved), *given) == f"{line}; see seamripper bisect --help"


def test_bisect_takes_no_revision_for_good_and_bad(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = mistake(capsys, "bisect", str(saved), "--repo", ".", "--good", "a", "b", "--bad", "b")
    assert said == "b is given as good and as bad; see seamripper bisect --help"


def test_bisect_prints_what_it_tried_and_what_came_of_it(
    monkeypatch: pytest.MonkeyPatch, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []
    cells = (Cell("a.py", "pypi:1", "clean", 0, 7), Cell("a.py", "pypi:2", "bug", 3, 3))
    result = BisectResult("a.py", "contract/E/A.b", ("pypi:1", "pypi:2"), cells, {})
    monkeypatch.setattr(revisits.revisions, "bisect_releases", lambda *given: seen.extend(given) or result)
    assert main(["bisect", str(saved), "--releases", "1..2", "--times", "2", "--workers", "3", "--no-cache"]) == 0
    assert seen[:5] == [saved, "1..2", 2, Rig(sys.executable), 3]
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["introduced in pypi:2", "not fixed in pypi:2"]


def test_bisect_hands_all_revisions_on(monkeypatch: pytest.MonkeyPatch, saved: Path, tmp_path: Path) -> None:
    seen: list[Any] = []
    result = BisectResult("a.py", "contract/E/A.b", ("r0",), (), {}, "why")
    monkeypatch.setattr(revisits.revisions, "bisect_commits", lambda *given: seen.extend(given) or result)
    given = ["--repo", str(tmp_path), "--good", "v1", "v3", "--bad", "v2", "--no-cache"]
    assert main(["bisect", str(saved), *given]) == 125
    assert seen[:6] == [saved, tmp_path, ("v1", "v3"), ("v2",), 3, Rig(sys.executable)]


def test_compare_writes_its_table(
    monkeypatch: pytest.MonkeyPatch, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(revisits.revisions, "compare", lambda *given: COMPARED)
    out = tmp_path / "o"
    main(["compare", str(saved), "--targets", "pypi:1", "pypi:2", "--out", str(out), "--json"])
    assert json.loads(capsys.readouterr().out)["rows"][0]["fixed_in"] == "pypi:2"
    assert (out / "compare.csv").read_text().splitlines()[1] == "repros/a.py,bug 3/3,fixed 0/3,fixed in 2"


SURVEY = Report(
    target="installed",
    python="python",
    versions={"sglang": "9.1"},
    parts=(Part("sgl_kernel", "stood in", "not installed"),),
    backends=(Backend("triton", ""), Backend("fa3", "no kernel")),
    error="",
    seconds=1.0,
)


@pytest.mark.parametrize(("survey", "status"), [(SURVEY, 0), (replace(SURVEY, error="no sglang"), 3)])
def test_doctor_exits_by_what_can_run(monkeypatch: pytest.MonkeyPatch, survey: Report, status: int) -> None:
    monkeypatch.setattr(inspections, "diagnose", lambda target, python: survey)
    assert main(["doctor"]) == status


def test_doctor_lists_what_is_stood_in(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(inspections, "diagnose", lambda target, python: SURVEY)
    main(["doctor"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["sgl_kernel", "stood", "in", "not", "installed"] in rows
    assert ["backend", "fa3", "cannot", "be", "built", "no", "kernel"] in rows


GAP_ROW = AuditRow(
    "HybridAttnBackend", "field", "missing", (), (Reader("eagle.py:build", "plain"),), "crash", 9.0, "no", True
)
FINE_ROW = replace(GAP_ROW, name="other", answer="base", gap=False)


@pytest.mark.parametrize(("rows", "status"), [((GAP_ROW, FINE_ROW), 1), ((FINE_ROW,), 0)])
def test_audit_exits_1_on_a_gap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_target: MakeTarget, rows: tuple[AuditRow, ...], status: int
) -> None:
    monkeypatch.setattr(inspections, "read_audit", lambda folder, wrappers: AuditReport(rows, (), ()))
    assert main(["audit", "--target", f"path:{make_target()}"]) == status


def test_audit_prints_ranked_rows(
    monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inspections, "read_audit", lambda folder, wrappers: AuditReport((GAP_ROW,) * 25, (), ()))
    main(["audit", "--target", f"path:{make_target()}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["gap", "HybridAttnBackend", "field", "missing", "no", "eagle.py:build"]
    assert len(lines) == 22
    assert lines[-1] == "25 gaps, 25 rows, 5 of them not shown (--json has all)"


def test_audit_hands_its_wrappers_on(monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget) -> None:
    seen: list[Any] = []

    def read(folder: Path, wrappers: tuple[str, ...]) -> AuditReport:
        seen.extend([folder, wrappers])
        return AuditReport((), (), ())

    monkeypatch.setattr(inspections, "read_audit", read)
    folder = make_target()
    main(["audit", "--target", f"path:{folder}", "--wrapper", "A", "B"])
    assert seen == [folder, ("A", "B")]


def test_an_unknown_wrapper_is_one_line(
    monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(folder: Path, wrappers: tuple[str, ...]) -> AuditReport:
        raise ValueError("no wrapper named X in this release; it has A, B")

    monkeypatch.setattr(inspections, "read_audit", refuse)
    line = mistake(capsys, "audit", "--target", f"path:{make_target()}", "--wrapper", "X")
    assert line == "no wrapper named X in this release; it has A, B; see seamripper audit --help"


def test_report_writes_all_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 0
    names = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    assert names == ["summary.md", "findings.csv", "pair_mode.csv", "report.html", "junit.xml"]


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m fuzz run --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["torch", "pandas", "sglang", "matplotlib"])
def test_the_command_line_starts_without(module: str) -> None:
    code = f"import sys, fuzz.__main__; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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


def test_audit_saves_its_gaps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_target: MakeTarget) -> None:
    monkeypatch.setattr(inspections, "read_audit", lambda folder, wrappers: AuditReport((GAP_ROW, FINE_ROW), (), ()))
    main(["audit", "--target", f"path:{make_target()}", "--repros", str(tmp_path / "new" / "repros")])
    (saved,) = (tmp_path / "new" / "repros").iterdir()
    assert saved.name.startswith("audit-missing-HybridAttnBackend_field-")
