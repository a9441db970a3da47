"""The verbs of the command line: each reads its options, calls one function and prints what came of it."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from fuzz import answers, arguments, revisions
from fuzz.answers import COULD_NOT_RUN
from fuzz.audit import audit as read_audit
from fuzz.audit import write_test as write_test_file
from fuzz.bench import BenchOptions, by_oracle
from fuzz.bench import bench as run_bench
from fuzz.campaign import CampaignOptions, CampaignResult, run_campaign
from fuzz.display import Display, console
from fuzz.doctor import diagnose
from fuzz.installed import installed_folder
from fuzz.order import ENGINES
from fuzz.program import ProgramError
from fuzz.repro import repros_in
from fuzz.revisions import CANNOT_TELL, NOT_SHOWN, SHOWN, Rig
from fuzz.sanitizer import TOOLS
from fuzz.script import ScriptError
from fuzz.store import write_whole
from fuzz.targets import open_target

NEEDED = "pip install 'seamripper[report]'"
SECONDS = 60.0  # of a campaign without a budget: enough for the import and a few hundred programs


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="seamripper")
def cli() -> None:
    """Find and reproduce faults where SGLang's HybridAttnBackend joins two attention backends.

    A SPEC names the SGLang to test: installed, pypi:VERSION, path:DIR (DIR holds sglang/), or git:DIR@REV.
    """


@cli.command(cls=arguments.Verb)
@arguments.target_option("installed", "SGLang to test.  [default: installed]")
@arguments.pair_option
@click.option("--twins", is_flag=True, help="Also pairs of a backend with itself, which SGLang never assembles.")
@arguments.runner_option
@arguments.device_option
@click.option("--engine", type=click.Choice(ENGINES), default="random", show_default=True)
@click.option("--seconds", metavar="N", type=click.FloatRange(min=0, min_open=True), help="Stop after N seconds.")
@click.option("--programs", metavar="N", type=click.IntRange(min=1), help="Stop after N programs.")
@click.option("--workers", metavar="N", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--known", metavar="DIR", type=click.Path(path_type=Path), help="Repro scripts of faults not to report.")
@click.option("--repros", metavar="DIR", type=click.Path(path_type=Path), default=Path("repros"), show_default=True)
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Records and reports.  [default: reports/out/...]"
)
@click.option("--shrink/--no-shrink", default=True, help="Shrink what is found.  [default: shrink]")
@arguments.python_option
@arguments.json_option
def run(
    seconds: float | None, programs: int | None, out: Path | None, python: str, as_json: bool, **chosen: Any
) -> int:
    """Fuzz a target; save a script for each new fault, and a report.

    Exit status: 0 nothing new, 1 new findings, 2 bad usage, 3 could not run.
    """
    if seconds is None and programs is None:
        seconds = SECONDS
    options = CampaignOptions(
        seconds=seconds,
        programs=programs,
        out=out or arguments.out_folder(chosen["target"]),
        python=python,
        **chosen,
    )
    with Display(console(stderr=True)) as display:
        result = run_campaign(options, display)
    reports = _write_reports(options)
    if as_json:
        _print_json(answers.campaign_json(result, reports))
    else:
        _print_campaign(result, options.target, reports)
    return result.exit_code


def _write_reports(options: CampaignOptions) -> list[Path]:
    """The reports of a campaign; run.json beside them lets `seamripper report` write them again."""
    now = datetime.now(timezone.utc)
    meta = {
        "title": f"{options.target}, {now:%Y-%m-%d %H:%M} UTC",
        "command": shlex.join(["seamripper", *click.get_current_context().obj]),
        "python": options.python,
    }
    write_whole(options.out / "run.json", json.dumps(meta) + "\n")
    try:
        from reports import write_reports  # pandas takes seconds to import, and only reports need it
    except ModuleNotFoundError as error:
        _tell(f"seamripper: no report written ({error}); {NEEDED}, then `seamripper report {options.out}`")
        return []
    return write_reports(options.out)


def _print_campaign(result: CampaignResult, target: str, reports: list[Path]) -> None:
    click.echo(answers.campaign_headline(result))
    if result.findings:
        console().print(answers.findings_table(result.findings))
    for command in answers.replay_commands(result, target):
        click.echo(f"replay: {command}")
    click.echo(f"report: {next((path for path in reports if path.suffix == '.html'), result.out)}")


def _tell(text: str) -> None:
    """Progress goes to stderr, so that stdout can be piped."""
    click.echo(text, err=True)


def _print_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=1))


@cli.command()
@arguments.paths_argument
@arguments.target_option(None, "SGLang to run it on.  [default: the one the repro names]")
@arguments.times_option
@click.option(
    "--sanitizer",
    "tool",
    type=click.Choice(TOOLS),
    help="Run each once, on a GPU, under this tool of compute-sanitizer.",
)
@arguments.python_option
@arguments.json_option
def replay(
    paths: tuple[Path, ...], target: str | None, times: int, tool: str | None, python: str, as_json: bool
) -> int:
    """Run saved repros (scripts, program files, or folders of scripts) again.

    Exit status: 0 the fault does not show, 1 it shows, 125 cannot tell, as `git bisect run` wants it. What
    compute-sanitizer reports counts as shown.
    """
    files = [file for path in paths for file in repros_in(path)]
    if not files:
        raise ProgramError(f"no repro scripts in {', '.join(map(str, paths))}; expected *.py files that `run` saved")
    with Display(console(stderr=True)) as display:
        if tool is None:
            results = revisions.replay_all(files, target, times, Rig(python), display.phase)
        else:
            results = revisions.replay_sanitized(files, target, tool, Rig(python), display.phase)
    codes = {result.exit_code for result in results}
    code = next((code for code in (SHOWN, CANNOT_TELL) if code in codes), NOT_SHOWN)
    if as_json:
        _print_json({"exit_code": code, "repros": [result.to_json() for result in results]})
    else:
        console().print(answers.replay_table(results))
    return code


@cli.command()
@arguments.path_argument
@arguments.target_option(None, "SGLang to run it on.  [default: the one the repro names]")
@arguments.python_option
@arguments.json_option
def shrink(path: Path, target: str | None, python: str, as_json: bool) -> int:
    """Print the smallest script that shows what PATH shows.

    Exit status: 0, or 125 if the fault does not show here.
    """
    with Display(console(stderr=True)) as display:
        result = revisions.shrink_path(path, target, Rig(python), display.phase)
    if result.confirmed is None:
        _tell(f"seamripper: {path}: {result.reason}")
        return result.exit_code
    smaller, before = result.confirmed.program, len(result.before.ops)
    try:
        script = answers.script_of(result)
    except ScriptError as error:
        _tell(f"no standalone script can show it ({error}); this is the program, which replays as well")
        script = ""
    if as_json:
        _print_json({"ops_before": before, "ops": len(smaller.ops), "program": smaller.text, "script": script})
    else:
        _tell(f"{before} ops before, {len(smaller.ops)} now")
        click.echo(script or smaller.text, nl=False)
    return result.exit_code


@cli.command(cls=arguments.Verb)
@arguments.paths_argument
@click.option(
    "--targets", metavar="SPEC...", multiple=True, required=True, help="SGLangs to run them on, oldest first."
)
@arguments.times_option
@click.option(
    "--workers", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="Targets at a time."
)
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path), help="Write compare.md and compare.csv there.")
@arguments.python_option
@arguments.json_option
def compare(
    paths: tuple[Path, ...],
    targets: tuple[str, ...],
    times: int,
    workers: int,
    out: Path | None,
    python: str,
    as_json: bool,
) -> int:
    """Run saved repros on several SGLangs: a table of repro by target.

    Exit status: 1 if something that worked on the first target fails on a later one, else 0.
    """
    with Display(console(stderr=True)) as display:
        result = revisions.compare(paths, targets, times, Rig(python, out), workers, display.phase)
    if as_json:
        _print_json(result.to_json())
    else:
        console().print(answers.compare_table(result))
        for note in answers.compare_notes(result):
            click.echo(note)
    if out is not None:
        try:
            from reports import write_comparison
        except ModuleNotFoundError as error:
            raise click.ClickException(f"the table cannot be written ({error}); {NEEDED}") from None
        for written in write_comparison(out, result.cells, result.targets):
            _tell(f"wrote {written}")
    return result.exit_code


@cli.command(cls=arguments.Verb)
@arguments.target_option("installed", "SGLang to read.  [default: installed]")
@click.option("--wrapper", "wrappers", metavar="NAME...", multiple=True, help="Wrapper classes.  [default: all]")
@click.option(
    "--write-test",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the checklist as a pytest file.",
)
@arguments.python_option
@arguments.json_option
def audit(target: str, wrappers: tuple[str, ...], write_test: Path | None, python: str, as_json: bool) -> int:
    """List the names that SGLang reads off an attention backend and a wrapper does not answer rightly.

    Exit status: 0, or 1 on a gap.
    """
    with Display(console(stderr=True)) as display, open_target(target) as opened:
        display.phase(f"reading {target}")
        try:
            report = read_audit(opened.folder or installed_folder(python), wrappers)
        except ValueError as error:
            raise click.UsageError(str(error), click.get_current_context()) from None
    if write_test is not None:
        write_test_file(report, write_test)
        _tell(f"wrote {write_test}")
    if as_json:
        click.echo(report.to_json())
    else:
        console().print(answers.audit_table(report))
        click.echo(answers.audit_headline(report))
    return 1 if report.gaps else 0


@cli.command()
@arguments.target_option("installed", "SGLang to look at.  [default: installed]")
@arguments.python_option
@arguments.json_option
def doctor(target: str, python: str, as_json: bool) -> int:
    """Say what is real here, what is stood in for, and which backends can run.

    Exit status: 0, or 3 if no backend of the target can run here.
    """
    with Display(console(stderr=True)) as display, open_target(target) as opened:
        display.phase(f"importing {target}")
        report = diagnose(opened, python)
    if as_json:
        _print_json(report.to_json())
    else:
        console().print(answers.doctor_table(report))
    return 0 if report.is_usable else COULD_NOT_RUN


@cli.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@arguments.json_option
def report(folder: Path, as_json: bool) -> int:
    """Write the reports of a run's --out folder again."""
    try:
        from reports import write_reports
    except ModuleNotFoundError as error:
        raise click.ClickException(f"reports cannot be written ({error}); {NEEDED}") from None
    paths = write_reports(folder)
    if as_json:
        _print_json({"reports": [str(path) for path in paths]})
    else:
        click.echo("\n".join(str(path) for path in paths))
    return 0


@cli.command(cls=arguments.Verb)
@arguments.target_option("pypi:0.5.23", "SGLang to put faults into.  [default: pypi:0.5.23]")
@click.option("--mutants", metavar="N", type=click.IntRange(min=1), required=True, help="How many faults to try.")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--seconds",
    metavar="N",
    type=click.FloatRange(min=0, min_open=True),
    default=SECONDS,
    show_default=True,
    help="Of campaign for each, from when it is imported.",
)
@click.option("--workers", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="At a time.")
@arguments.pair_option
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Results, and the copies.  [default: reports/out/...]"
)
@arguments.python_option
@arguments.json_option
def bench(target: str, out: Path | None, as_json: bool, **chosen: Any) -> int:
    """Put random one-token faults into a copy of a release; how many does a short campaign detect, and what does?

    Exit status: 0 if it could run, whatever it found.
    """
    options = BenchOptions(target=target, out=out or arguments.out_folder(f"bench-{target}"), **chosen)
    with Display(console(stderr=True)) as display:
        results = run_bench(options, display.phase)
    if as_json:
        _print_json({"by_oracle": by_oracle(results), "mutants": [result.to_json() for result in results]})
    else:
        console().print(answers.bench_table(results))
        for survivor in (result for result in results if result.state == "survived"):
            click.echo(f"\nmutant {survivor.number} survived:\n{survivor.diff}")
        click.echo(answers.bench_headline(results))
    return 0
