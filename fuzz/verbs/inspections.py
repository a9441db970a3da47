"""Verbs that look without fuzzing: the audit of wrappers, and what this machine can run."""

from __future__ import annotations

from pathlib import Path

import click

from fuzz import answers, arguments
from fuzz.answers import COULD_NOT_RUN
from fuzz.audit import audit as read_audit
from fuzz.audit import write_test as write_test_file
from fuzz.display import Display, console
from fuzz.doctor import diagnose
from fuzz.gap_script import save_gap
from fuzz.installed import installed_folder
from fuzz.store import make_folder
from fuzz.targets import open_target
from fuzz.verbs.group import cli, print_json, tell


@cli.command(cls=arguments.Verb)
@arguments.target_option("installed", "SGLang to read.  [default: installed]")
@click.option("--wrapper", "wrappers", metavar="NAME...", multiple=True, help="Wrapper classes.  [default: all]")
@click.option(
    "--write-test",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the checklist as a pytest file.",
)
@click.option("--repros", metavar="DIR", type=click.Path(path_type=Path), help="Save a file for each gap, to compare.")
@arguments.python_option
@arguments.json_option
def audit(
    target: str, wrappers: tuple[str, ...], write_test: Path | None, repros: Path | None, python: str, as_json: bool
) -> int:
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
        tell(f"wrote {write_test}")
    if repros is not None:
        make_folder(repros)
        gaps = [row for row in report.rows if row.gap]
        for row in gaps:
            save_gap(repros, row, target, f"seamripper audit --target {target}")
        tell(f"wrote {len(gaps)} files to {repros}")
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
        print_json(report.to_json())
    else:
        console().print(answers.doctor_table(report))
    return 0 if report.is_usable else COULD_NOT_RUN
