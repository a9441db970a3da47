"""The verb that says what generated programs vary, and what they do not and why."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from fuzz import arguments
from fuzz.coverage import PROGRAMS, coverage, summary, to_json
from fuzz.display import console
from fuzz.verbs.group import cli, print_json


@cli.command(name="coverage", cls=arguments.Verb)
@click.option(
    "--pair",
    "pairs",
    metavar="PREFILL:DECODE...",
    multiple=True,
    default=("triton:fa3", "fa3:triton"),
    show_default=True,
    help="The pairs to draw programs for.",
)
@click.option(
    "--programs", type=click.IntRange(1, 100_000), default=PROGRAMS, show_default=True, help="How many to draw."
)
@arguments.json_option
def coverage_verb(pairs: tuple[str, ...], programs: int, as_json: bool) -> int:
    """List each axis of a world and a step: drawn how often, or pinned and why. Generates programs, runs none."""
    drawn = coverage(pairs, programs)
    if as_json:
        print_json({"programs": programs, "pairs": list(pairs), "axes": to_json(drawn)})
        return 0
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("axis", "values drawn", "pinned"):
        table.add_column(name, overflow="fold")
    for one in drawn:
        table.add_row(
            Text(f"{one.axis.owner}.{one.axis.field}"), Text(summary(one)), Text("; ".join(one.axis.pins), "dim")
        )
    console().print(table)
    return 0
