"""What the verbs of the command line have in common: their options, and how values are checked."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import click

from stubs.world_rules import DEVICES, RUNNERS

WORKERS_MAX = 4  # by default: each imports SGLang and torch, and holds one to two GB
F = TypeVar("F", bound=Callable[..., Any])


class Verb(click.Command):
    """A command whose repeatable options take several values after one name: ``--targets A B C``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [option for option in self.params if isinstance(option, click.Option) and option.multiple]
        return super().parse_args(ctx, spread(args, {name for option in options for name in option.opts}))


def spread(arguments: Sequence[str], names: set[str]) -> list[str]:
    """Repeat an option's name before each further value, up to the next option: click reads one value a name."""
    out: list[str] = []
    name, is_filled = "", False
    for position, argument in enumerate(arguments):
        if argument == "--":
            return [*out, *arguments[position:]]
        if argument.startswith("-"):
            head, equals, _ = argument.partition("=")
            name, is_filled = (head, bool(equals)) if head in names else ("", False)
            out.append(argument)
        elif name and is_filled:
            out += [name, argument]
        else:
            out.append(argument)
            is_filled = bool(name)
    return out


class Pair(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """PREFILL:DECODE, two backend names. Whether the target has them, only the target can say."""

    name = "PREFILL:DECODE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not re.fullmatch(r"[A-Za-z0-9_]+:[A-Za-z0-9_]+", text):
            self.fail(f"{text!r}; expected two backend names, PREFILL:DECODE, such as triton:torch_native", param, ctx)
        return text


def _interpreter(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if shutil.which(value) is None:
        raise click.BadParameter(f"{value!r} is no program that can be run; expected a Python interpreter", ctx, param)
    return value


def target_option(default: str | None, help: str) -> Callable[[F], F]:
    return click.option("--target", metavar="SPEC", default=default, help=help)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
python_option = click.option(
    "--python",
    metavar="PATH",
    default=sys.executable,
    callback=_interpreter,
    help="Interpreter for the processes that import SGLang (default: this one).",
)
times_option = click.option(
    "--times", metavar="N", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each repro."
)
workers_option = click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(min=1),
    default=min(WORKERS_MAX, os.cpu_count() or 1),
    show_default="one a core, at most 4",
    help="Targets at a time.",
)
cache_option = click.option(
    "--cache/--no-cache", default=True, help="Take results from earlier runs of the same on the same.  [default: cache]"
)
pair_option = click.option(
    "--pair", "pairs", type=Pair(), multiple=True, help="Backend pairs to drive (default: all that run here)."
)
runner_option = click.option(
    "--runner", type=click.Choice(RUNNERS), default="fake", show_default=True, help="What stands for the model runner."
)
device_option = click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True)
paths_argument = click.argument(
    "paths", metavar="PATH...", type=click.Path(exists=True, path_type=Path), nargs=-1, required=True
)
path_argument = click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))


def out_folder(target: str, now: datetime | None = None) -> Path:
    """The default --out: ``reports/out/<utc time>-<target>``."""
    stamp = (now or datetime.now(timezone.utc)).strftime("%Y%m%dT%H%M%SZ")
    return Path("reports/out") / f"{stamp}-{re.sub(r'[^A-Za-z0-9.]+', '-', target).strip('-')[-80:]}"
