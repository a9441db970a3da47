"""The verb that searches revisions for the place where a bug came or went."""

from __future__ import annotations

from pathlib import Path

import click

from fuzz import arguments, matrix, revisions
from fuzz.bisection import BisectResult
from fuzz.display import Display, console
from fuzz.revisions import Rig
from fuzz.targets import default_results
from fuzz.verbs.group import NEEDED, cli, print_json, tell


@cli.command(cls=arguments.Verb)
@arguments.path_argument
@click.option("--releases", metavar="FIRST..LAST", help="Try each release from FIRST to LAST.")
@click.option(
    "--repo",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Search the commits of this git checkout.",
)
@click.option(
    "--good",
    metavar="REV...",
    multiple=True,
    help="Without the bug. One before --bad finds where it came, one behind it where it went.",
)
@click.option("--bad", metavar="REV...", multiple=True, help="With the bug.")
@arguments.times_option
@arguments.workers_option
@arguments.cache_option
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep the state and the answer there; the same command goes on.",
)
@arguments.python_option
@arguments.json_option
def bisect(
    path: Path,
    releases: str | None,
    repo: Path | None,
    good: tuple[str, ...],
    bad: tuple[str, ...],
    times: int,
    workers: int,
    cache: bool,
    out: Path | None,
    python: str,
    as_json: bool,
) -> int:
    """Find where the bug of a saved repro was introduced and where it was fixed.

    With --releases and --repo, the commits between the releases that differ are searched next (tag vX.Y.Z is X.Y.Z).

    Over releases each is tried. Over commits (of first parents; those of a merge follow) both ends are confirmed, then
    the stretches between them are halved. What cannot be tested is stepped over, and the range that leaves is said.

    Exit status: 0 each change is known to the revision, 125 cannot tell, or not more closely than a range.
    """
    _check(releases, repo, good, bad)
    rig = Rig(python, out, results=default_results() if cache else None)
    with Display(console(stderr=True)) as display:
        if releases is not None:
            result = revisions.bisect_releases(path, releases, times, rig, workers, display.phase)
        else:
            assert repo is not None
            result = revisions.bisect_commits(path, repo, good, bad, times, rig, display.phase)
        refined: list[BisectResult] = []
        if releases is not None and repo is not None:
            refined = revisions.refine(path, repo, result, times, rig, display.phase)
    if as_json:
        print_json({**result.to_json(), **({"commits": [one.to_json() for one in refined]} if refined else {})})
    else:
        for one in (result, *refined):
            console().print(matrix.bisect_table(one))
            click.echo("\n".join(one.answers))
    if out is not None:
        _write_reports(out, result)
    return max(one.exit_code for one in (result, *refined))


def _write_reports(out: Path, result: BisectResult) -> None:
    try:
        from reports import write_bisection
    except ModuleNotFoundError as error:
        raise click.ClickException(f"the answer cannot be written ({error}); {NEEDED}") from None
    for written in write_bisection(out, result.to_json()):
        tell(f"wrote {written}")


def _check(releases: str | None, repo: Path | None, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    if not (releases and not good and not bad) and not (repo and good and bad and not releases):
        raise click.UsageError(
            "expected either --releases FIRST..LAST, or --repo DIR with --good REV and --bad REV",
            click.get_current_context(),
        )
    if set(good) & set(bad):
        raise click.UsageError(f"{min(set(good) & set(bad))} is given as good and as bad", click.get_current_context())
