"""Verbs for what was saved: run it again, make it smaller, set it against several revisions."""

from __future__ import annotations

from pathlib import Path

import click

from fuzz import answers, arguments, expected, matrix, revisions
from fuzz.display import Display, console
from fuzz.program import ProgramError
from fuzz.repro import repros_in
from fuzz.revisions import CANNOT_TELL, NOT_SHOWN, SHOWN, Rig
from fuzz.sanitizer import TOOLS
from fuzz.script import ScriptError
from fuzz.targets import default_results
from fuzz.verbs.group import NEEDED, cli, print_json, tell


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
        print_json({"exit_code": code, "repros": [result.to_json() for result in results]})
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
        tell(f"seamripper: {path}: {result.reason}")
        return result.exit_code
    smaller, before = result.confirmed.program, len(result.before.ops)
    try:
        script = answers.script_of(result)
    except ScriptError as error:
        tell(f"no standalone script can show it ({error}); this is the program, which replays as well")
        script = ""
    if as_json:
        print_json({"ops_before": before, "ops": len(smaller.ops), "program": smaller.text, "script": script})
    else:
        tell(f"{before} ops before, {len(smaller.ops)} now")
        click.echo(script or smaller.text, nl=False)
    return result.exit_code


@cli.command(cls=arguments.Verb)
@arguments.paths_argument
@click.option(
    "--targets", metavar="SPEC...", multiple=True, required=True, help="SGLangs to run them on, oldest first."
)
@arguments.times_option
@arguments.workers_option
@arguments.cache_option
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Write the table there as Markdown, HTML and CSV."
)
@click.option(
    "--write-expected",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Note there what each did on each release, for `pytest repros`.",
)
@arguments.python_option
@arguments.json_option
def compare(
    paths: tuple[Path, ...],
    targets: tuple[str, ...],
    times: int,
    workers: int,
    cache: bool,
    out: Path | None,
    write_expected: Path | None,
    python: str,
    as_json: bool,
) -> int:
    """Run saved repros on several SGLangs: a table of repro by target.

    Each cell says how many of its runs showed the fault, with 95 % bounds of how often it shows; a star: from the
    cache.

    Exit status: 1 if something that worked on the first target fails on a later one, else 0.
    """
    with Display(console(stderr=True)) as display:
        rig = Rig(python, out, results=default_results() if cache else None)
        result = revisions.compare(paths, targets, times, rig, workers, display.phase)
    if as_json:
        print_json(result.to_json())
    else:
        console().print(matrix.compare_table(result))
        for note in matrix.compare_notes(result):
            click.echo(note)
    if write_expected is not None:
        expected.write_expected(write_expected, [cell for row in result.rows for cell in row.cells])
        tell(f"wrote {write_expected}")
    if out is not None:
        try:
            from reports import write_comparison
        except ModuleNotFoundError as error:
            raise click.ClickException(f"the table cannot be written ({error}); {NEEDED}") from None
        for written in write_comparison(out, result.to_json()):
            tell(f"wrote {written}")
    return result.exit_code
