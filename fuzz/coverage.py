"""What generated programs are made of: for each axis the values drawn and how often. Generates only, runs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fuzz.axes import AXES, Axis
from fuzz.generate import program_for
from fuzz.limits import Limits
from fuzz.program import Op, Program

PROGRAMS = 2000  # the rarest kind, one in a hundred, comes some twenty times
VALUES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Drawn:
    """One axis and how often each of its values came, the most frequent first. Lists count by their length."""

    axis: Axis
    values: tuple[tuple[object, int], ...]

    @property
    def varies(self) -> bool:
        return len(self.values) > 1


def coverage(pairs: Sequence[str], programs: int = PROGRAMS) -> tuple[Drawn, ...]:
    """Every axis over the programs of the seeds from 0 on: the same answer wherever it is asked."""
    limits = Limits(pairs=tuple(pairs))
    limits.check()
    counts: dict[tuple[str, str], Counter[object]] = {(axis.owner, axis.field): Counter() for axis in AXES}
    for seed in range(programs):
        for owner, thing in _parts(program_for(seed, limits)):
            for (known, field), counter in counts.items():
                if known == owner:
                    value = getattr(thing, field)
                    counter[f"{len(value)} long" if isinstance(value, tuple) else value] += 1
    return tuple(Drawn(axis, tuple(counts[axis.owner, axis.field].most_common())) for axis in AXES)


def _parts(program: Program) -> Iterable[tuple[str, object]]:
    """The world, each op, and each row of an op, with the name of its class."""
    yield "World", program.world
    for op in program.ops:
        yield type(op).__name__, op
        yield from (("Row", row) for row in _rows(op))


def _rows(op: Op) -> Sequence[object]:
    rows: Sequence[object] = getattr(op, "rows", ())
    return rows


def to_json(drawn: Sequence[Drawn]) -> list[dict[str, object]]:
    return [
        {
            "axis": f"{one.axis.owner}.{one.axis.field}",
            "drawn": one.axis.drawn,
            "pins": list(one.axis.pins),
            "values": {str(value): count for value, count in one.values},
        }
        for one in drawn
    ]


def summary(one: Drawn) -> str:
    """Its values in a line: those that came most, and how many more there are."""
    shown = ", ".join(f"{value} ({count})" for value, count in one.values[:VALUES_SHOWN])
    left = len(one.values) - VALUES_SHOWN
    return shown + (f" and {left} more" if left > 0 else "")
