"""Verbs for the programs that engine atheris builds on: several folders into one, and a folder made small."""

from __future__ import annotations

from pathlib import Path

import click

from fuzz import arguments
from fuzz.corpus import merge, prune
from fuzz.verbs.group import cli, print_json, tell

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@cli.group(name="corpus")
def corpus_group() -> None:
    """Merge and prune the folders of programs that `run --engine atheris` builds on."""


@corpus_group.command(name="merge")
@click.argument("folders", metavar="DIR...", type=FOLDER, nargs=-1, required=True)
@click.option("--into", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), required=True)
@arguments.json_option
def merge_verb(folders: tuple[Path, ...], into: Path, as_json: bool) -> int:
    """Put the programs of all folders into one. What cannot be read is set aside where it is, with a line."""
    new = merge(folders, into, tell)
    if as_json:
        print_json({"into": str(into), "new": new})
    else:
        click.echo(f"{new:,} new in {into}")
    return 0


@corpus_group.command(name="prune")
@click.argument("folder", metavar="DIR", type=FOLDER)
@arguments.json_option
def prune_verb(folder: Path, as_json: bool) -> int:
    """Remove programs that show nothing that the others do not, simple ones last."""
    kept, removed = prune(folder, tell)
    if as_json:
        print_json({"folder": str(folder), "kept": kept, "removed": removed})
    else:
        click.echo(f"{kept:,} kept, {removed:,} removed from {folder}")
    return 0
