"""Bookkeeping of a program's live requests, without tensors: says which op SGLang's scheduler could run next.

Sources of the rules, in SGLang: ``managers/tp_worker.py`` and ``managers/scheduler.py`` for lengths,
``managers/schedule_policy.py`` for chunks, ``mem_cache/radix_cache.py`` for prefix hits and
``mem_cache/allocation_sizing.py`` for what a speculative step reserves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Program, ProgramError, Retract, Row, Verify
from fuzz.ranks import check_padding
from fuzz.request import InvalidOp, Request, State, accept_max, check_encoder, input_max, length_max
from stubs.world import World


class Ledger:
    """The state between two ops. ``apply`` moves on by one op, or raises InvalidOp and leaves everything as it was."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.requests: dict[int, Request] = {}
        self._holders: dict[int, int] = {}  # page -> requests that hold it
        self._next_page = 0
        self._length_max = length_max(world)

    @property
    def pages_free(self) -> int:
        return self.world.pool_pages - len(self._holders)

    @property
    def chunked(self) -> int | None:
        """The request whose prompt is under way in chunks."""
        return next(iter(self.numbers(State.CHUNKED)), None)

    @property
    def rows_free(self) -> int:
        return self.world.max_running_requests - len(self.numbers(State.RUNNING)) - len(self.numbers(State.CHUNKED))

    def numbers(self, state: State) -> list[int]:
        """Requests in ``state``, in order of first appearance."""
        return [number for number, request in self.requests.items() if request.state is state]

    def can_generate(self, number: int) -> bool:
        """True for a running request that has not come to the length limit, where SGLang finishes it."""
        request = self.requests[number]
        return request.state is State.RUNNING and request.length + 1 <= self._length_max

    def cacheable(self, number: int) -> int:
        """Tokens of ``number``'s KV that another prompt may hit: whole pages."""
        request = self.requests.get(number)
        if request is None or request.state in (State.RETRACTED, State.GONE) or not self.world.radix_cache:
            return 0
        return request.cacheable // self.world.page_size * self.world.page_size

    def reserved(self, number: int) -> int:
        """KV slots in ``number``'s row while it is verified: L + 2A, in whole pages."""
        return self._pages(self.requests[number].length + 2 * self.world.spec_reserve) * self.world.page_size

    def apply(self, op: Op) -> None:
        """Run ``op``'s bookkeeping. Raises InvalidOp, and then nothing has changed."""
        match op:
            case Extend():
                self._extend(op.rows, ())
            case Mixed():
                self._mixed(op)
            case Decode():
                check_padding(op, self.world)
                self._decode(op.requests)
            case Verify():
                self._verify(op)
            case Finish():
                self._finish(op)
            case Retract():
                self._retract(op.requests)
            case Idle():
                check_padding(op, self.world)

    def _mixed(self, op: Mixed) -> None:
        if self.world.encoder_decoder:
            raise InvalidOp("mixed in a world with encoders", "extend: SGLang serves them without chunks of prompts")
        if self.world.is_speculative:
            raise InvalidOp("mixed in a speculative world", "extend")
        self._check_generating(op.requests)
        self._extend(op.rows, op.requests)

    def _decode(self, numbers: tuple[int, ...]) -> None:
        if self.world.is_speculative:
            raise InvalidOp("decode in a speculative world", "verify")
        self._check_generating(numbers)
        self._commit({number: self._pages(self.requests[number].length + 1) for number in numbers})
        for number in numbers:
            self.requests[number].length += 1

    def _verify(self, op: Verify) -> None:
        if not self.world.is_speculative:
            raise InvalidOp("verify in a world that is not speculative", "decode")
        self._check_generating(op.requests)
        if len(op.accepts) != len(op.requests):
            raise InvalidOp(f"{len(op.accepts)} accepts", f"one for each of {len(op.requests)} requests")
        _check_lens(op, self.world)
        check_padding(op, self.world)
        verified = op.verify_lens or (accept_max(self.world),) * len(op.accepts)
        for accept, most in zip(op.accepts, verified, strict=True):
            if not 1 <= accept <= most:
                raise InvalidOp(f"accepts {accept} tokens", f"1..{most}")
        for name, value in (("draft_extend", op.draft_extend), ("draft_decode", op.draft_decode)):
            if value not in (0, 1):
                raise InvalidOp(f"{name} is {value}", "0 or 1")
        self._commit({number: self.reserved(number) // self.world.page_size for number in op.requests})
        for number, accept in zip(op.requests, op.accepts, strict=True):
            self.requests[number].length += accept

    def _finish(self, op: Finish) -> None:
        self._check_running(op.requests)
        if op.keep not in (0, 1):
            raise InvalidOp(f"keep is {op.keep}", "0 or 1")
        for number in op.requests:
            request = self.requests[number]
            extended = request.cacheable // self.world.page_size * self.world.page_size
            known = self.world.known(request.length, extended) // self.world.page_size if op.keep else 0
            self._free(request.pages[known:])
            del request.pages[known:]
            request.length = request.cacheable = known * self.world.page_size
            request.state = State.KEPT if known else State.GONE

    def _retract(self, numbers: tuple[int, ...]) -> None:
        self._check_generating(numbers)
        for number in numbers:
            request = self.requests[number]
            self._free(request.pages)
            # Prompt and output are extended over again, the pending token with them.
            self.requests[number] = Request(State.RETRACTED, owed=request.length + 1, encoder=request.encoder)

    def _extend(self, rows: Sequence[Row], decoding: tuple[int, ...]) -> None:
        if not rows:
            raise InvalidOp("no rows", "at least one")
        _check_unique([*(row.request for row in rows), *decoding])
        self._check_chunks(rows)
        after = {row.request: self._admit(row) for row in rows}
        joining = len(rows) - (self.chunked is not None)
        if joining > self.rows_free:
            raise InvalidOp(f"{joining} requests join", f"at most {self.rows_free} (max_running_requests)")
        wanted = {number: self._pages(request.length) for number, request in after.items()}
        wanted |= {number: self._pages(self.requests[number].length + 1) for number in decoding}
        self._check_pool(wanted, after)
        for request in after.values():
            for page in request.pages:
                self._holders[page] += 1
        for row in rows:
            self._free(self.requests[row.request].pages if row.request in self.requests else ())
        self.requests |= after
        self._commit(wanted)
        for number in decoding:
            self.requests[number].length += 1

    def _check_chunks(self, rows: Sequence[Row]) -> None:
        """SGLang puts the chunked request first and, its budget spent, cuts only the last request short."""
        chunked = self.chunked
        if chunked is not None and rows[0].request != chunked:
            raise InvalidOp(f"the first row is request {rows[0].request}", f"the mid-chunk request {chunked}")
        for row in rows:
            if row.more not in (0, 1):
                raise InvalidOp(f"more is {row.more}", "0 or 1")
            if row.more and row is not rows[-1]:
                raise InvalidOp(f"request {row.request} is cut into chunks before the last row", "the last row at most")

    def _admit(self, row: Row) -> Request:
        """The request after its row has run, holding so far only the pages it had or shares."""
        before = self.requests.get(row.request)
        if row.tokens < 1:
            raise InvalidOp(f"request {row.request} extends by {row.tokens} tokens", "at least 1")
        if before is not None and before.state not in (State.CHUNKED, State.RETRACTED):
            raise InvalidOp(f"request {row.request} is {before.state.value}", "a new, retracted or mid-chunk request")
        shared = self._shared(row, before)
        start = before.length if before is not None else 0
        length = start + row.cached + row.tokens
        owed = before.owed if before is not None else 0
        self._check_length(row, length, owed)
        holder = None if row.cached_from is None else self.requests[row.cached_from]
        check_encoder(self.world, row, [one for one in (before, holder) if one is not None])
        state = State.CHUNKED if row.more else State.RUNNING
        return Request(state, length, self.world.cache_keys(length), owed if row.more else 0, shared, row.encoder)

    def _shared(self, row: Row, before: Request | None) -> list[int]:
        if row.cached_from is None:
            if row.cached:
                raise InvalidOp(f"request {row.request} has {row.cached} cached tokens from nowhere", "cached_from")
            return list(before.pages) if before is not None else []
        if before is not None and before.state is State.CHUNKED:
            raise InvalidOp(f"request {row.request} takes a cached prefix in mid-chunk", "a prefix in the first chunk")
        if row.cached < 1 or row.cached % self.world.page_size:
            raise InvalidOp(f"{row.cached} cached tokens", f"a multiple of page size {self.world.page_size}, not 0")
        most = self.cacheable(row.cached_from)
        if row.cached > most:
            raise InvalidOp(f"{row.cached} cached tokens from request {row.cached_from}", f"at most {most}")
        return self.requests[row.cached_from].pages[: row.cached // self.world.page_size]

    def _check_length(self, row: Row, length: int, owed: int) -> None:
        if row.more and length % self.world.page_size:
            raise InvalidOp(
                f"request {row.request} is cut at {length} tokens", f"a multiple of page size {self.world.page_size}"
            )
        if owed and not row.more and length != owed:
            raise InvalidOp(f"request {row.request} comes back with {length} tokens", f"its prompt and output, {owed}")
        # A chunk leaves at least one token for the next.
        most = (owed or input_max(self.world)) - row.more
        if length > most:
            raise InvalidOp(f"request {row.request} has {length} prompt tokens", f"at most {most}")

    def _check_running(self, numbers: tuple[int, ...]) -> None:
        if not numbers:
            raise InvalidOp("no requests", "at least one")
        _check_unique(numbers)
        for number in numbers:
            request = self.requests.get(number)
            if request is None or request.state is not State.RUNNING:
                state = "unknown" if request is None else request.state.value
                raise InvalidOp(f"request {number} is {state}", "a running request")

    def _check_generating(self, numbers: tuple[int, ...]) -> None:
        self._check_running(numbers)
        for number in numbers:
            if not self.can_generate(number):
                length = self.requests[number].length
                raise InvalidOp(f"request {number} has {length} tokens", f"below {self._length_max}, the length limit")

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.world.page_size)

    def _check_pool(self, wanted: dict[int, int], requests: dict[int, Request]) -> None:
        needed = 0
        for number, pages in wanted.items():
            request = requests.get(number) or self.requests[number]
            needed += max(0, pages - len(request.pages))
        if needed > self.pages_free:
            raise InvalidOp(f"{needed} more pages", f"at most {self.pages_free} (max_total_tokens)")

    def _commit(self, wanted: dict[int, int]) -> None:
        """Let each request have ``wanted`` pages in all."""
        self._check_pool(wanted, {})
        for number, pages in wanted.items():
            request = self.requests[number]
            for _ in range(pages - len(request.pages)):
                request.pages.append(self._next_page)
                self._holders[self._next_page] = 1
                self._next_page += 1

    def _free(self, pages: Iterable[int]) -> None:
        for page in pages:
            self._holders[page] -= 1
            if not self._holders[page]:
                del self._holders[page]


def check(program: Program) -> None:
    """Raise ProgramError on the first op that SGLang's scheduler could not run; WorldError on a bad world."""
    program.world.check()
    ledger = Ledger(program.world)
    for index, op in enumerate(program.ops):
        try:
            ledger.apply(op)
        except InvalidOp as error:
            raise ProgramError(f"op {index} ({op.kind}): {error}") from None


def _check_lens(op: Verify, world: World) -> None:
    if not op.verify_lens:
        return
    if not world.is_ragged:
        raise InvalidOp(f"verify_lens {list(op.verify_lens)} of {world.spec_algorithm}", "none")
    if len(op.verify_lens) != len(op.requests):
        raise InvalidOp(f"{len(op.verify_lens)} verify_lens", f"none, or one for each of {len(op.requests)} requests")
    for count in op.verify_lens:
        if not 1 <= count <= world.spec_draft_tokens:
            raise InvalidOp(f"verifies {count} tokens", f"1..{world.spec_draft_tokens}")


def _check_unique(numbers: Sequence[int]) -> None:
    for index, number in enumerate(numbers):
        if number in numbers[:index]:
            raise InvalidOp(f"request {number} twice", "each request once")
