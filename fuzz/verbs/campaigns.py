"""Verbs that fuzz: a campaign, and its reports once more."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from fuzz import answers, arguments
from fuzz.campaign import CampaignOptions, CampaignResult, run_campaign
from fuzz.cluster import run_on_cluster
from fuzz.display import Display, console, is_corrupt
from fuzz.order import ENGINES
from fuzz.since import earlier_run
from fuzz.store import write_whole
from fuzz.verbs.group import NEEDED, cli, print_json, tell

SECONDS = 60.0  # of a campaign without a budget: enough for the import and a few hundred programs


@cli.command(cls=arguments.Verb)
@arguments.target_option("installed", "SGLang to test.  [default: installed]")
@arguments.pair_option
@click.option("--twins", is_flag=True, help="Also pairs of a backend with itself, which SGLang never assembles.")
@click.option(
    "--corrupt",
    is_flag=True,
    help="End each program in a step whose input is corrupted: is it refused, or right all the same? Reported apart.",
)
@arguments.runner_option
@arguments.device_option
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="random",
    help="How programs are chosen; exhaustive: all there are in a small scope, shorter ones first; atheris: variations "
    "of those that ran code or came to steps that none had before.  [default: random]",
)
@click.option(
    "--corpus",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Programs that engine atheris builds on and adds to; any number of runs may share it.  [default: OUT/corpus]",
)
@click.option("--seconds", metavar="N", type=click.FloatRange(min=0, min_open=True), help="Stop after N seconds.")
@click.option("--programs", metavar="N", type=click.IntRange(min=1), help="Stop after N programs.")
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(min=1),
    default=None,
    help="Programs at a time.  [default: 1; with --ray as many as the cluster has CPUs]",
)
@click.option(
    "--ray",
    metavar="[ADDRESS]",
    is_flag=False,
    flag_value="",
    default=None,
    help="Run the workers over this Ray cluster; without ADDRESS over one that Ray finds, or starts here.",
)
@click.option(
    "--memory-mb",
    metavar="N",
    type=click.IntRange(min=1),
    default=None,
    help="Most memory of a worker.  [default: 4096 on a CPU, 16384 with CUDA; less on a small machine]",
)
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--known",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Repro scripts of known faults, each with a line `Known: REASON` in its docstring: counted, not new.",
)
@click.option(
    "--since",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="An earlier run's --out folder, or one that holds such (the last of this target counts): what it found and this "
    "run does not meet is run again; is it fixed?",
)
@click.option("--repros", metavar="DIR", type=click.Path(path_type=Path), default=Path("repros"), show_default=True)
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Records and reports.  [default: reports/out/...]"
)
@click.option("--shrink/--no-shrink", default=True, help="Shrink what is found.  [default: shrink]")
@arguments.python_option
@arguments.json_option
def run(
    seconds: float | None,
    programs: int | None,
    memory_mb: int | None,
    workers: int | None,
    ray: str | None,
    out: Path | None,
    since: Path | None,
    python: str,
    as_json: bool,
    **chosen: Any,
) -> int:
    """Fuzz a target; save a script for each new fault, and a report.

    Exit status: 0 nothing new, 1 new findings, 2 bad usage, 3 could not run.
    """
    if seconds is None and programs is None:
        seconds = SECONDS
    out = out or arguments.out_folder(chosen["target"])
    options = CampaignOptions(
        seconds=seconds,
        programs=programs,
        memory_mb=memory_mb or 0,
        workers=workers or 1,
        out=out,
        since=_earlier_run(since, out, chosen["target"]),
        python=python,
        **chosen,
    )
    with Display(console(stderr=True)) as display:
        result = run_campaign(options, display) if ray is None else run_on_cluster(options, ray, workers, display)
    reports = _write_reports(options)
    if as_json:
        print_json(answers.campaign_json(result, reports))
    else:
        _print_campaign(result, options.target, reports)
    return result.exit_code


def _earlier_run(given: Path | None, out: Path, target: str) -> Path | None:
    """The run that --since means; a first night has none, which is told."""
    if given is None:
        return None
    try:
        found = earlier_run(given, out, target)
    except NotADirectoryError as error:
        raise click.UsageError(f"--since: {error}") from None
    if found is None:
        tell(f"seamripper: --since: {given} holds no earlier run on {target}")
    return found


def _write_reports(options: CampaignOptions) -> list[Path]:
    """The reports of a campaign; run.json beside them lets `seamripper report` write them again."""
    now = datetime.now(timezone.utc)
    meta = {
        "title": f"{options.target}, {now:%Y-%m-%d %H:%M} UTC",
        "command": shlex.join(["seamripper", *click.get_current_context().obj]),
        "python": options.python,
        **({} if options.since is None else {"since": str(options.since)}),
    }
    write_whole(options.out / "run.json", json.dumps(meta) + "\n")
    try:
        from reports import write_reports  # pandas takes seconds to import, and only reports need it
    except ModuleNotFoundError as error:
        tell(f"seamripper: no report written ({error}); {NEEDED}, then `seamripper report {options.out}`")
        return []
    return write_reports(options.out)


def _print_campaign(result: CampaignResult, target: str, reports: list[Path]) -> None:
    click.echo(answers.campaign_headline(result))
    corrupt = [finding for finding in result.findings if is_corrupt(finding)]
    valid = [finding for finding in result.findings if not is_corrupt(finding)]
    for findings in filter(None, (valid, corrupt)):
        console().print(answers.findings_table(findings))
    for command in answers.replay_commands(result, target):
        click.echo(f"replay: {command}")
    for line in (*answers.known_lines(result), *answers.since_lines(result)):
        click.echo(line)
    click.echo(f"report: {next((path for path in reports if path.suffix == '.html'), result.out)}")


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
        print_json({"reports": [str(path) for path in paths]})
    else:
        click.echo("\n".join(str(path) for path in paths))
    return 0
