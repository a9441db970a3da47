"""A Program: a World, the steps to drive it through, and a data seed; plain data with one canonical text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

from stubs.corruption import CORRUPTIONS
from stubs.world import World, WorldError

FORMAT_VERSION = 1
OPS_MAX = 512  # a text with more ops is refused: nothing we generate comes near it
TEXT_BYTES_MAX = 1 << 20  # one MiB; the largest generated program is a few KiB


class ProgramError(ValueError):
    """A program text or an op sequence that is malformed; the message says where and what was expected."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request's part of an extend: ``tokens`` new tokens after what it has.

    ``cached_from``/``cached``: a new request takes its first ``cached`` tokens (a multiple of the page size)
    from that other request's KV, as a radix cache hit. ``more`` 1: this is a chunk and the prompt goes on.
    ``encoder``: the request begins with so many tokens of an encoder, counted among ``cached`` or else ``tokens``.
    """

    request: int
    tokens: int
    cached_from: int | None = None
    cached: int = 0
    more: int = 0
    encoder: int = 0


@dataclass(frozen=True, slots=True)
class Extend:
    """Prefill: new requests, re-admitted retracted ones, and the one chunked request's next chunk."""

    kind: ClassVar[str] = "extend"
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Mixed:
    """A chunked-prefill batch with running requests' decode tokens mixed in (ForwardMode.MIXED)."""

    kind: ClassVar[str] = "mixed"
    rows: tuple[Row, ...]
    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decode:
    """One token for each of the running ``requests``.

    Of a rank among several (data-parallel attention): ``dead`` rows of nobody follow, for another rank has as many
    more. ``beside_extend`` 1: another one extends, for which SGLang may run the step as an extend, without dead rows.
    """

    kind: ClassVar[str] = "decode"
    requests: tuple[int, ...]
    dead: int = 0
    beside_extend: int = 0


@dataclass(frozen=True, slots=True)
class Verify:
    """Target verify; ``accepts[i]`` tokens (1..spec_steps+1 of EAGLE's) of ``requests[i]`` are then committed.

    ``draft_extend`` 1: the draft model's extend over the verified window follows, as in service. ``draft_decode`` 1:
    what is verified comes from the draft model's steps, as in service; else it is drawn. Both mean nothing in a world
    whose draft model is not driven. ``dead`` requests of nobody are behind those of both, see Decode. Where a world is
    ragged, ``verify_lens[i]`` tokens are verified; empty: all drafted.
    """

    kind: ClassVar[str] = "verify"
    requests: tuple[int, ...]
    accepts: tuple[int, ...]
    draft_extend: int = 1
    draft_decode: int = 0
    verify_lens: tuple[int, ...] = ()
    dead: int = 0


@dataclass(frozen=True, slots=True)
class Idle:
    """A step with no request in it (a DP-attention rank with nothing to do), or ``dead`` rows alone, see Decode."""

    kind: ClassVar[str] = "idle"
    dead: int = 0
    beside_extend: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    """Requests end. ``keep`` 1: their KV stays in the prefix cache and may be hit; 0: their slots are freed."""

    kind: ClassVar[str] = "finish"
    requests: tuple[int, ...]
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Retract:
    """Running requests lose their slots and wait to be extended again over prompt plus output."""

    kind: ClassVar[str] = "retract"
    requests: tuple[int, ...]


Op = Extend | Mixed | Decode | Verify | Idle | Finish | Retract
OPS: tuple[type[Op], ...] = (Extend, Mixed, Decode, Verify, Idle, Finish, Retract)
_BY_KIND = {op.kind: op for op in OPS}


@dataclass(frozen=True, slots=True)
class Program:
    """Immutable. Equal programs have equal text; ``hash`` names it. ``seed`` makes all tensor data.

    ``corruption``, where there is one: the last op's step on the target is run once more with its input corrupted so
    (``stubs.corruption`` lists them).
    """

    world: World
    ops: tuple[Op, ...]
    seed: int = 0
    corruption: str = ""

    @property
    def text(self) -> str:
        """Canonical text: a JSON header line, then one JSON line per op."""
        header = {"seamripper": FORMAT_VERSION, "seed": self.seed, "world": self.world.to_json()}
        if self.corruption:  # came later
            header["corruption"] = self.corruption
        return "\n".join([_dumps(header), *(_dumps(op_to_json(op)) for op in self.ops)]) + "\n"

    @property
    def hash(self) -> str:
        """16 hex digits of the text's SHA-256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def cost(self) -> tuple[int, int, int, int, int, str]:
        """Shortlex order: ops, rows, tokens, frills, world complexity, text. Smaller is simpler.

        Frills are cached prefixes, unfinished chunks, encoders, kept requests, drafts that are decoded or verified in part,
        and padding: their text alone may sort before the plain form.
        """
        rows = sum(_rows(op) for op in self.ops)
        tokens = sum(row.tokens + row.cached for op in self.ops for row in getattr(op, "rows", ()))
        frills = sum(_frills(op) for op in self.ops)
        return len(self.ops), rows, tokens, frills, world_cost(self.world), self.text

    def with_ops(self, ops: tuple[Op, ...]) -> Program:
        return replace(self, ops=ops)


def plainest(world: World) -> World:
    """The world with every default that has the backends, the runner and the device of ``world``."""
    return World(prefill=world.prefill, decode=world.decode, runner=world.runner, device=world.device)


def world_cost(world: World) -> int:
    """How far a world is from the plainest one: the number of fields that differ from the defaults, sizes included."""
    ours, theirs = asdict(world), asdict(plainest(world))
    sizes = world.num_heads + world.num_layers + world.page_size + world.head_dim // 8 + world.context_len // 16
    differing = sum(int(ours[name] != theirs[name]) for name in ours)
    # EAGLE is what scripts have; the other algorithms differ from the default in as many fields.
    rarer = 50 * (world.is_speculative and not world.has_draft_model)
    return 100 * differing + rarer + sizes + world.spec_draft_tokens


def _rows(op: Op) -> int:
    return len(getattr(op, "rows", ())) + len(getattr(op, "requests", ()))


def _frills(op: Op) -> int:
    rows: tuple[Row, ...] = getattr(op, "rows", ())
    names = ("keep", "draft_decode", "dead", "beside_extend")
    more = sum(getattr(op, name, 0) for name in names) + bool(getattr(op, "verify_lens", ()))
    return more + sum((row.cached > 0) + row.more + (row.encoder > 0) for row in rows)


def _dumps(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), sort_keys=True)


def op_to_json(op: Op) -> dict[str, Any]:
    """An op as a JSON object; fields at their defaults are left out, so that equal ops have equal text."""
    data: dict[str, Any] = {"op": op.kind}
    if isinstance(op, (Extend, Mixed)):
        data["rows"] = [_row_to_json(row) for row in op.rows]
    if isinstance(op, (Mixed, Decode, Verify, Finish, Retract)):
        data["requests"] = list(op.requests)
    if isinstance(op, Verify):
        data["accepts"], data["draft_extend"] = list(op.accepts), op.draft_extend
        later = {"draft_decode": op.draft_decode, "verify_lens": list(op.verify_lens)}
        data |= {name: value for name, value in later.items() if value}
    if isinstance(op, Finish):
        data["keep"] = op.keep
    return data | {name: getattr(op, name) for name in ("dead", "beside_extend") if getattr(op, name, 0)}  # came later


def _row_to_json(row: Row) -> dict[str, Any]:
    data: dict[str, Any] = {"request": row.request, "tokens": row.tokens}
    if row.cached_from is not None:
        data["cached_from"], data["cached"] = row.cached_from, row.cached
    return data | {name: getattr(row, name) for name in ("more", "encoder") if getattr(row, name)}


def op_from_json(data: object, where: str) -> Op:
    """Parse one op; ProgramError names ``where`` and the field."""
    if not isinstance(data, dict):
        raise ProgramError(f"{where}: got {type(data).__name__}; expected an object with 'op'")
    name = data.get("op")
    if not isinstance(name, str) or name not in _BY_KIND:
        raise ProgramError(f"{where}: op is {name!r}; expected one of {', '.join(sorted(_BY_KIND))}")
    parsers: dict[str, Callable[[object], Any]] = {
        "rows": lambda v: tuple(_row_from_json(row, where) for row in _list(v, where, "rows")),
        **{name: partial(_ints, where=where, name=name) for name in ("requests", "accepts", "verify_lens")},
    }
    values: dict[str, Any] = {}
    known = set(_BY_KIND[name].__dataclass_fields__)
    for key, value in data.items():
        if key == "op":
            continue
        if key not in known:
            raise ProgramError(f"{where}: {name} has the unknown field {key!r}")
        values[key] = parsers[key](value) if key in parsers else _int(value, where, key)
    try:
        return _BY_KIND[name](**values)
    except TypeError as error:
        raise ProgramError(f"{where}: {name} lacks a field ({error})") from None


def _row_from_json(data: object, where: str) -> Row:
    if not isinstance(data, dict) or not set(data) <= set(Row.__dataclass_fields__):
        names = ", ".join(Row.__dataclass_fields__)
        raise ProgramError(f"{where}: row is {data!r}; expected an object with {names}")
    values = {key: _int(value, where, key) for key, value in data.items()}
    try:
        return Row(**values)
    except TypeError as error:
        raise ProgramError(f"{where}: row lacks a field ({error})") from None


def _list(value: object, where: str, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ProgramError(f"{where}: {name} is {value!r}; expected a list")
    return value


def _ints(value: object, where: str, name: str) -> tuple[int, ...]:
    return tuple(_int(item, where, name) for item in _list(value, where, name))


def _int(value: object, where: str, name: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ProgramError(f"{where}: {name} is {value!r}; expected an integer from 0 to 2**31-1")
    return value


def parse(text: str) -> Program:
    """Read a program's text. Nothing is executed. Raises ProgramError with the line and what was expected."""
    if len(text) > TEXT_BYTES_MAX:
        raise ProgramError(f"program text has {len(text)} characters; the limit is {TEXT_BYTES_MAX}")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ProgramError("program text is empty; expected a JSON header line")
    if len(lines) - 1 > OPS_MAX:
        raise ProgramError(f"program has {len(lines) - 1} ops; the limit is {OPS_MAX}")
    header = _load_line(lines[0], 1)
    if not isinstance(header, dict) or header.get("seamripper") != FORMAT_VERSION:
        raise ProgramError(f'line 1: expected a header with "seamripper": {FORMAT_VERSION}')
    if set(header) | {"corruption"} != {"seamripper", "seed", "world", "corruption"}:
        raise ProgramError(
            f"line 1: header has {sorted(header)}; expected seamripper, seed, world and maybe corruption"
        )
    corruption = header.get("corruption", "")
    if "corruption" in header and (not isinstance(corruption, str) or corruption not in CORRUPTIONS):
        raise ProgramError(f"line 1: corruption is {corruption!r}; expected one of {', '.join(CORRUPTIONS)}")
    try:
        world = World.from_json(header["world"])
    except WorldError as error:
        raise ProgramError(f"line 1: {error}") from None
    ops = tuple(op_from_json(_load_line(line, n), f"line {n}") for n, line in enumerate(lines[1:], start=2))
    return Program(world, ops, _int(header["seed"], "line 1", "seed"), corruption)


def _load_line(line: str, number: int) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"line {number}: not JSON ({error}); expected an object a line, or a script") from None
