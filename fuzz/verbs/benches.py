"""Verbs that measure the oracles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fuzz import answers, arguments
from fuzz.bench import BenchOptions, by_oracle
from fuzz.bench import bench as run_bench
from fuzz.display import Display, console
from fuzz.verbs.group import cli, print_json

SECONDS = 60.0  # of campaign for each fault


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
        print_json({"by_oracle": by_oracle(results), "mutants": [result.to_json() for result in results]})
    else:
        console().print(answers.bench_table(results))
        for survivor in (result for result in results if result.state == "survived"):
            click.echo(f"\nmutant {survivor.number} survived:\n{survivor.diff}")
        click.echo(answers.bench_headline(results))
    return 0
