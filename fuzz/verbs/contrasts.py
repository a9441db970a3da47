"""The verb that sets a target against a baseline, program by program."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from fuzz import answers, arguments
from fuzz.contrast import COULD_NOT_RUN, ContrastOptions, ContrastResult
from fuzz.display import Display, console
from fuzz.duel import STATES
from fuzz.lockstep import RESULT
from fuzz.lockstep import contrast as run_contrast
from fuzz.order import CampaignOptions
from fuzz.verbs.campaigns import SECONDS
from fuzz.verbs.group import NEEDED, cli, print_json, tell

STATE_STYLES = {"new": "bold red", "uncertain": "yellow", "gone": "green", "unchanged": "dim"}


@cli.command(cls=arguments.Verb)
@click.option("--baseline", metavar="SPEC", required=True, help="SGLang to measure against.")
@arguments.target_option("installed", "SGLang to test.  [default: installed]")
@arguments.pair_option
@click.option("--twins", is_flag=True, help="Also pairs of a backend with itself, which SGLang never assembles.")
@arguments.runner_option
@arguments.device_option
@click.option("--seconds", metavar="N", type=click.FloatRange(min=0, min_open=True), help="Run programs for N seconds.")
@click.option("--programs", metavar="N", type=click.IntRange(min=1), help="Stop after N programs.")
@click.option(
    "--workers", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="On each of the two."
)
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--repros", metavar="DIR", type=click.Path(path_type=Path), help="Scripts of what is new.  [default: in --out]"
)
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Records and reports.  [default: reports/out/...]"
)
@click.option("--shrink/--no-shrink", default=True, help="Shrink what is new.  [default: shrink]")
@arguments.python_option
@arguments.json_option
def contrast(
    baseline: str,
    seconds: float | None,
    programs: int | None,
    repros: Path | None,
    out: Path | None,
    as_json: bool,
    **chosen: Any,
) -> int:
    """Run the same programs on a baseline and on a target; say what is new, gone and unchanged.

    What only one of them shows is run again on both, until chance is ruled out. A script is saved for what is new.

    Exit status: 0 nothing new, 1 something is new, 2 bad usage, 3 could not run.
    """
    if seconds is None and programs is None:
        seconds = SECONDS
    out = out or arguments.out_folder(f"contrast-{chosen['target']}")
    campaign = CampaignOptions(seconds=seconds, programs=programs, repros=repros or out / "repros", out=out, **chosen)
    with Display(console(stderr=True), counts_new=False) as display:
        result = run_contrast(ContrastOptions(baseline, campaign), display)
    written = _write_reports(result)
    if as_json:
        print_json({**result.to_json(), "reports": [str(path) for path in written]})
        return result.exit_code
    click.echo(headline(result))
    if result.differences:
        console().print(table(result))
    for difference in result.differences:
        if difference.script:
            click.echo(f"replay: seamripper compare {shlex.quote(difference.script)} --targets {_specs(result)}")
    for path in written:
        if path.suffix == ".html":
            click.echo(f"report: {path}")
    return result.exit_code


def _specs(result: ContrastResult) -> str:
    return shlex.join([result.baseline, result.target])


def headline(result: ContrastResult) -> str:
    """One line: what differs, in how many programs, and why it ended early if it did."""
    if result.exit_code == COULD_NOT_RUN:
        return f"could not run: {result.reason}"
    counts = ", ".join(f"{result.count(state)} {state}" for state in STATES)
    line = f"{counts} in {result.programs:,} programs on {result.baseline} and {result.target}"
    if result.interrupted:
        line += " (interrupted)"
    return f"{line}: {result.reason}" if result.reason else line


def table(result: ContrastResult) -> Table:
    made = answers.plain_table("", "fault", "pair", "step", "programs", "run again", "")
    for one in result.differences:
        made.add_row(
            Text(one.state, STATE_STYLES[one.state]),
            Text(one.signature),
            Text(one.pair),
            Text(one.mode),
            Text(f"{one.programs[0]} → {one.programs[1]}"),
            Text(f"{one.duel.before} → {one.duel.after}" if one.duel.before.runs else "–"),
            Text(one.duel.detail, "dim"),
        )
    return made


def _write_reports(result: ContrastResult) -> list[Path]:
    try:
        from reports import write_contrast  # pandas takes seconds to import, and only reports need it
    except ModuleNotFoundError as error:
        tell(f"seamripper: no report written ({error}); {NEEDED}; what was found stands in {result.out}/{RESULT}")
        return []
    return write_contrast(result.out, result.to_json())
