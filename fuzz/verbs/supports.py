"""The verb that says what releases support here: the table in the README is its output."""

from __future__ import annotations

import click

from fuzz import arguments
from fuzz.answers import COULD_NOT_RUN
from fuzz.display import Display, console
from fuzz.support import markdown, support
from fuzz.verbs.group import cli, print_json


@cli.command(name="support", cls=arguments.Verb)
@click.option("--targets", metavar="SPEC...", multiple=True, required=True, help="SGLangs to try, oldest first.")
@arguments.python_option
@arguments.json_option
def support_verb(targets: tuple[str, ...], python: str, as_json: bool) -> int:
    """Try what each backend, alone in both halves, and each pair of them can do: tables in Markdown.

    The JSON says why not. Exit status: 0, or 3 if a target could not be tried.
    """
    with Display(console(stderr=True)) as display:
        releases = [support(target, python, display.phase) for target in targets]
    if as_json:
        print_json({"releases": [release.to_json() for release in releases]})
    else:
        click.echo(markdown(releases), nl=False)
        for release in releases:
            if release.error:
                click.echo(f"{release.version}: {release.error}", err=True)
    return COULD_NOT_RUN if any(release.error for release in releases) else 0
