"""Verbs that measure the oracles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fuzz import answers, arguments, scoreboard
from fuzz.bench import BenchOptions, by_oracle
from fuzz.bench import bench as run_bench
from fuzz.display import Display, console
from fuzz.hunt import HuntOptions
from fuzz.hunt import hunt as run_hunt
from fuzz.hunted import scores
from fuzz.known_bugs import read_bugs
from fuzz.verbs.group import cli, print_json

MUTANT_SECONDS = 60.0  # of campaign for each: enough for a hundred programs
BUG_SECONDS = 120.0  # a known bug may want a rare program
TARGET = "pypi:0.5.23"


@cli.command(cls=arguments.Verb)
@click.option("--mutants", metavar="N", type=click.IntRange(min=1), help="How many random faults to try.")
@click.option(
    "--bugs",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A TOML list of known bugs to look for.",
)
@arguments.target_option(None, f"SGLang to put mutants into.  [default: {TARGET}]")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), help="Of the mutants.  [default: 0]")
@click.option(
    "--seeds", metavar="N", type=click.IntRange(min=1), help="Look for each bug with seeds 0 to N - 1.  [default: 1]"
)
@click.option(
    "--seconds",
    metavar="N",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Of campaign for each, from when it is imported.  [default: {MUTANT_SECONDS:.0f}; {BUG_SECONDS:.0f} for a bug]",
)
@click.option("--workers", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="At a time.")
@arguments.pair_option
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Results, as they come.  [default: reports/out/...]"
)
@click.option("--repros", metavar="DIR", type=click.Path(path_type=Path), help="Save a script for each bug detected.")
@arguments.python_option
@arguments.json_option
def bench(mutants: int | None, bugs: Path | None, out: Path | None, as_json: bool, **chosen: Any) -> int:
    """Measure a campaign: on random one-token faults in a copy of a release, or on a list of known bugs.

    A known bug is detected when a finding on `present` matches, and none on `fixed` does. A bench that was broken off
    goes on where it was when it is given the same --out. Exit status: 0 if it could run, whatever it found.
    """
    if (mutants is None) == (bugs is None):
        raise click.UsageError("expected one of --mutants N and --bugs FILE", click.get_current_context())
    given = {name: value for name, value in chosen.items() if value is not None}
    if bugs is not None:
        return _known_bugs(bugs, out, as_json, given)
    _refuse(given, ("seeds", "repros"), "--bugs")
    target = given.pop("target", TARGET)
    options = BenchOptions(
        target=target,
        mutants=mutants or 0,
        out=out or arguments.out_folder(f"bench-{target}"),
        **{"seconds": MUTANT_SECONDS, **given},
    )
    with Display(console(stderr=True)) as display:
        results = run_bench(options, display.phase)
    if as_json:
        print_json({"by_oracle": by_oracle(results), "mutants": [result.to_json() for result in results]})
    else:
        console().print(answers.bench_table(results))
        for survivor in (result for result in results if result.state == "survived"):
            click.echo(f"\nmutant {survivor.number} survived:\n{survivor.diff}")
        click.echo(answers.bench_headline(results))
    return 0


def _known_bugs(path: Path, out: Path | None, as_json: bool, given: dict[str, Any]) -> int:
    _refuse(given, ("target", "seed"), "--mutants")
    out = out or arguments.out_folder(f"bench-{path.stem}")
    options = HuntOptions(read_bugs(path), out, **{"seconds": BUG_SECONDS, **given})
    with Display(console(stderr=True)) as display:
        board = scores(run_hunt(options, display.phase))
    if as_json:
        print_json(scoreboard.board_json(board))
    else:
        console().print(scoreboard.scoreboard(board))
        click.echo(scoreboard.headline(board))
    return 0


def _refuse(given: dict[str, Any], names: tuple[str, ...], belongs: str) -> None:
    for name in names:
        if name in given:
            raise click.UsageError(f"--{name} goes with {belongs} alone", click.get_current_context())
