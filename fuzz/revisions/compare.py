"""Sets saved repros against targets, several targets at a time: where does each show, and since when?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from fuzz.comparison import Cell, CompareResult, Cost, Row, in_order
from fuzz.program import ProgramError
from fuzz.repro import repros_in
from fuzz.revisions.column import Answer, Ask, Column, run_column
from fuzz.revisions.rig import Rig, Saved, read_saved, silent
from fuzz.revisions.sample import FLAKY_RUNS, RUNS_MAX, clean_runs_for
from fuzz.targets import TargetError


def compare(
    paths: Sequence[Path],
    targets: Sequence[str],
    times: int,
    rig: Rig,
    jobs: int = 1,
    tell: Callable[[str], None] = silent,
) -> CompareResult:
    """Run every repro in ``paths`` (files, folders of scripts) on every target, one worker a target, ``jobs`` at once.

    Each is run ``times`` times, and more often where that would leave it to chance (``Sample.wanted``). A target that
    cannot be had or does not import costs its column (infra). Raises ProgramError for a bad path or file, and
    TargetError where not one target can be had.
    """
    repros = [read_saved(file) for path in paths for file in repros_in(path)]
    if not repros:
        raise ProgramError(f"no repro scripts in {', '.join(map(str, paths))}; expected *.py files that `run` saved")
    first = [Ask(saved, times, min(script_clean_runs(saved), FLAKY_RUNS)) for saved in repros]
    columns = list(run_columns([(target, first) for target in targets], rig, jobs, tell))
    if all(isinstance(column, TargetError) for column in columns):
        raise next(column for column in columns if isinstance(column, TargetError))
    columns = _topped_up(columns, targets, repros, rig, jobs, tell)
    cells = [_cells(column, target, repros) for column, target in zip(columns, targets, strict=True)]
    rows = (
        Row(str(saved.path), str(saved.repro.signature or ""), in_order(line))
        for saved, line in zip(repros, zip(*cells, strict=True), strict=True)
    )
    costs = (column.cost for column in columns if isinstance(column, Column))
    return CompareResult(tuple(targets), tuple(rows), tuple(costs))


def run_columns(
    asked: Sequence[tuple[str, Sequence[Ask]]], rig: Rig, jobs: int, tell: Callable[[str], None]
) -> Iterator[Column | TargetError]:
    """Ask each target its own, ``jobs`` of them at once; one that cannot be had is its error. In order, when done."""
    stop = threading.Event()

    def column(indexed: tuple[int, tuple[str, Sequence[Ask]]]) -> Column | TargetError:
        number, (target, asks) = indexed
        tell(f"{target}: {len(asks)} repro(s)")
        try:
            return run_column(target, asks, rig, stop, number, tell)
        except TargetError as error:
            return error

    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(column, enumerate(asked))
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def script_clean_runs(saved: Saved) -> int:
    """How many clean runs exclude the bug, by what the script says of its reliability; 0 where it says nothing."""
    return clean_runs_for((saved.repro.shown, saved.repro.runs), ())


def _topped_up(
    columns: Sequence[Column | TargetError],
    targets: Sequence[str],
    repros: Sequence[Saved],
    rig: Rig,
    jobs: int,
    tell: Callable[[str], None],
) -> list[Column | TargetError]:
    """What is known once all have answered, how rarely a bug shows, may ask for more clean runs."""
    had = {index: column for index, column in enumerate(columns) if isinstance(column, Column)}
    needed = [_clean_runs(saved, [column.answers[row] for column in had.values()]) for row, saved in enumerate(repros)]
    short: dict[int, list[int]] = {}
    for index, column in had.items():
        asks = [replace(answer.ask, clean_runs=needed[row]) for row, answer in enumerate(column.answers)]
        answers = [replace(answer, ask=ask) for answer, ask in zip(column.answers, asks, strict=True)]
        had[index] = replace(column, answers=tuple(answers))
        if rows := [row for row, answer in enumerate(answers) if _is_short(answer)]:
            short[index] = rows
    again = [(targets[index], [_once_more(had[index].answers[row]) for row in rows]) for index, rows in short.items()]
    for (index, rows), more in zip(short.items(), run_columns(again, rig, jobs, tell), strict=True):
        if isinstance(more, Column):  # else what the first look gave stands, unsure as it is
            had[index] = _merged(had[index], rows, more)
    return [had.get(index, column) for index, column in enumerate(columns)]


def _once_more(answer: Answer) -> Ask:
    return replace(answer.ask, before=answer.sample)


def _clean_runs(saved: Saved, answers: Sequence[Answer]) -> int:
    samples = [answer.sample for answer in answers if not answer.trouble and answer.sample.state == "bug"]
    return clean_runs_for((saved.repro.shown, saved.repro.runs), [(sample.k, sample.n) for sample in samples])


def _is_short(answer: Answer) -> bool:
    sample, clean_runs = answer.sample, answer.ask.clean_runs_needed
    return not answer.trouble and sample.state == "clean" and sample.n < min(clean_runs, RUNS_MAX)


def _merged(column: Column, rows: Sequence[int], more: Column) -> Column:
    """The column with the later answers, which hold the earlier runs too."""
    answers = list(column.answers)
    for row, answer in zip(rows, more.answers, strict=True):
        if not answer.trouble:
            answers[row] = replace(answer, cached=column.answers[row].cached)
    one, two = column.cost, more.cost
    cost = Cost(
        one.target,
        one.import_seconds + two.import_seconds,
        one.run_seconds + two.run_seconds,
        one.runs + two.runs,
        one.cached,
    )
    return replace(column, answers=tuple(answers), cost=cost)


def _cells(column: Column | TargetError, target: str, repros: Sequence[Saved]) -> tuple[Cell, ...]:
    if isinstance(column, Column):
        return column.cells
    return tuple(Cell(str(saved.path), target, "infra", 0, 0, str(column)) for saved in repros)
