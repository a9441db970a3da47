"""Makes a sequence of ops valid again after something was taken out of it: what no longer fits is cut or dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuzz.edit import with_requests
from fuzz.ledger import Ledger
from fuzz.program import Decode, Extend, Finish, Mixed, Op, Retract, Row, Verify
from fuzz.request import InvalidOp, State, accept_max, input_max
from stubs.world import World

# What becomes of an op that would fit the ledger as it stands: another that fits as well, or None for nothing.
Admit = Callable[[Ledger, Op], Op | None]


def mend(world: World, ops: tuple[Op, ...], admit: Admit | None = None) -> tuple[Op, ...]:
    """The part of ``ops`` that can run in ``world``, in order; a valid sequence comes back as it is.

    Requests that are not in the state an op wants leave it, lengths are cut to the limits, a re-admitted request
    extends to what it now owes, an op with nothing left goes. ``admit`` has a say on what is left.
    """
    ledger = Ledger(world)
    fitting = []
    for op in ops:
        fitted = _fit(ledger, op)
        if fitted is not None and admit is not None:
            fitted = admit(ledger, fitted)
        if fitted is None:
            continue
        try:
            ledger.apply(fitted)
        except InvalidOp:
            continue
        fitting.append(fitted)
    return tuple(fitting)


def _fit(ledger: Ledger, op: Op) -> Op | None:
    match op:
        case Extend():
            rows = _fit_rows(ledger, op.rows)
            return Extend(rows) if rows else None
        case Mixed():
            return _fit_mixed(ledger, op)
        case Decode():
            decode = _fit_decode(ledger, op.requests)
            return replace(op, requests=decode.requests) if decode is not None else None
        case Verify():
            return _fit_verify(ledger, op)
        case Finish():
            running = ledger.numbers(State.RUNNING)
            numbers = tuple(number for number in op.requests if number in running)
            return replace(op, requests=numbers) if numbers else None
        case Retract():
            numbers = _generating(ledger, op.requests)
            return Retract(numbers) if numbers else None
    return op


def _fit_mixed(ledger: Ledger, op: Mixed) -> Op | None:
    rows, numbers = _fit_rows(ledger, op.rows), _generating(ledger, op.requests)
    if not rows:
        return _fit_decode(ledger, numbers)
    if not numbers or ledger.world.is_speculative or ledger.world.encoder_decoder:
        return Extend(rows)
    return Mixed(rows, numbers)


def _fit_decode(ledger: Ledger, requests: tuple[int, ...]) -> Decode | None:
    numbers = _generating(ledger, requests)
    return Decode(numbers) if numbers and not ledger.world.is_speculative else None


def _fit_verify(ledger: Ledger, op: Verify) -> Op | None:
    if not ledger.world.is_speculative:
        return _fit_decode(ledger, op.requests)
    numbers = _generating(ledger, op.requests)
    most, op = accept_max(ledger.world), with_requests(op, numbers)
    lens = tuple(min(count, most) for count in op.verify_lens) if ledger.world.is_ragged else ()
    accepts = tuple(map(min, op.accepts, lens or (most,) * len(numbers)))
    dead = op.dead if ledger.world.has_draft_model else 0
    return replace(op, accepts=accepts, verify_lens=lens, dead=dead) if numbers else None


def _generating(ledger: Ledger, requests: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(number for number in requests if number in ledger.requests and ledger.can_generate(number))


def _fit_rows(ledger: Ledger, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    waiting = (State.CHUNKED, State.RETRACTED)
    rows = tuple(
        row for row in rows if row.request not in ledger.requests or ledger.requests[row.request].state in waiting
    )
    if ledger.chunked is not None and (not rows or rows[0].request != ledger.chunked):
        return ()
    fitted = [_fit_row(ledger, row, last=index == len(rows) - 1) for index, row in enumerate(rows)]
    return tuple(row for row in fitted if row is not None)


def _fit_row(ledger: Ledger, row: Row, *, last: bool) -> Row | None:
    request = ledger.requests.get(row.request)
    done, owed = (request.length, request.owed) if request is not None else (0, 0)
    most = (owed or input_max(ledger.world)) - done
    page = ledger.world.page_size
    cached = 0
    if row.cached_from is not None and not done:
        cached = min(row.cached, ledger.cacheable(row.cached_from), most - 1) // page * page
    encoder = _encoder_of(ledger, row)
    if (
        cached
        and row.cached_from is not None
        and (cached < encoder or ledger.requests[row.cached_from].encoder != encoder)
    ):
        cached = 0
    most -= cached
    tokens = min(row.tokens, most)
    # A chunk ends on a page: the next boundary below, or the first there is, with a token left for the next chunk.
    chunk = (done + cached + tokens) // page * page - done - cached
    if chunk < 1:
        chunk += page
    more = int(row.more and last and chunk < most and not ledger.world.encoder_decoder)
    if more:
        tokens = chunk
    elif owed:
        tokens = most
    if tokens < 1:
        return None
    if not cached and not owed:
        encoder = min(encoder, tokens - 1)
    return Row(row.request, tokens, row.cached_from if cached else None, cached, more, encoder)


def _encoder_of(ledger: Ledger, row: Row) -> int:
    """The tokens of an encoder that a request begins with: those that it had, or that its prefix has, or its own."""
    for number in (row.request, row.cached_from):
        if number is not None and number in ledger.requests:
            return ledger.requests[number].encoder
    return row.encoder if ledger.world.encoder_decoder else 0
