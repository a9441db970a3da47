"""Makes programs from choices: a world a server could be started with, then steps its scheduler could take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuzz.choice import Choices, Seeded
from fuzz.extent import lengths_of, tokens_of
from fuzz.ledger import Ledger
from fuzz.limits import Limits
from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Program, Retract, Row, Verify
from fuzz.request import InvalidOp, Request, State, accept_max, input_max
from fuzz.turns import stratum
from fuzz.worlds import WITHOUT_GRAPHS, captures, draw_world
from stubs.world import World

# Tries to find an op that fits into what is left of the pool, per op wanted.
TRIES_PER_OP = 4
FULL_EVERY, FULL_PROMPTS = 4, 3  # of programs whose budget holds so many of the longest prompts
# Worlds drawn until one captures graphs, as one in four does: one program in a thousand is left without.
GRAPH_TRIES = 24


def program_for(seed: int, limits: Limits) -> Program:
    """The program that ``seed`` stands for under ``limits``.

    Seeds in a row go round the pairs, and round the kinds of world that each pair runs, with graphs and without, so
    that even a short campaign leaves none out.
    """
    return generate(Seeded(seed), stratum(seed, limits))


def generate(choices: Choices, limits: Limits) -> Program:
    """A program that passes ``ledger.check``; the same choices and limits give the same program."""
    # The data seed comes first: depth-first search varies the last choices first and so leaves it alone.
    seed = choices.integer(0, (1 << 31) - 1)
    if limits.worlds:
        world = choices.pick(limits.worlds)
    else:
        pair = choices.pick(limits.pairs)
        world = _world(choices, pair, limits)
    drawer = _Drawer(choices, world, limits)
    return Program(world=world, ops=drawer.ops(), seed=seed)


def next_op(choices: Choices, world: World, ops: tuple[Op, ...], limits: Limits) -> Op:
    """An op that may come after ``ops``, which are valid; only the pool may still refuse it.

    In every second case each kind is as likely as any other.
    """
    is_even = choices.chance(1, 2)
    return _Drawer(choices, world, limits, ops).next_op(is_even=is_even)


def _world(choices: Choices, pair: str, limits: Limits) -> World:
    for _ in range(GRAPH_TRIES):
        world = draw_world(
            choices, pair, limits.runner, limits.device, limits.page_sizes, limits.speculative, limits.shapes
        )
        if world.graph or not limits.graph or not captures(world):
            break
    return replace(world, graph=0, graph_max=0) if limits.graph == 0 and captures(world) else world


class _Drawer:
    """Draws one op after the other against a ledger, which has the last word on what fits; ``before`` have run."""

    def __init__(self, choices: Choices, world: World, limits: Limits, before: tuple[Op, ...] = ()) -> None:
        self.choices = choices
        self.world = world
        self.limits = limits
        self.ledger = Ledger(world)
        self.tokens_left = limits.tokens_max
        self.lengths = lengths_of(world)
        # Now and then all prompts are about as long as may be, so that a whole batch comes to the limit together.
        fits = FULL_PROMPTS * input_max(world) <= limits.tokens_max and not before and not limits.worlds
        self.is_full = fits and choices.chance(1, FULL_EVERY)
        for op in before:
            self.ledger.apply(op)
            self.tokens_left -= tokens_of(op, world)
        # What the ledger says before the op that is being drawn.
        self.chunked: int | None = None
        self.running: list[int] = []
        self.generating: list[int] = []

    def ops(self) -> tuple[Op, ...]:
        wanted = self.choices.integer(self.limits.ops_min, self.limits.ops_max)
        ops: list[Op] = []
        for _ in range(wanted * TRIES_PER_OP):
            if len(ops) == wanted:
                break
            op = self.next_op()
            try:
                self.ledger.apply(op)
            except InvalidOp:
                # Structure is right by construction; only the pool can refuse.
                continue
            self.tokens_left -= tokens_of(op, self.world)
            ops.append(op)
        return tuple(ops)

    def next_op(self, *, is_even: bool = False) -> Op:
        self.chunked = self.ledger.chunked
        self.running = self.ledger.numbers(State.RUNNING)
        self.generating = self._generating()
        draw = self.choices.weigh(
            [(1 if is_even else weight, draw) for weight, draw, possible in self._menu() if possible]
        )
        return draw()

    def _menu(self) -> tuple[tuple[int, Callable[[], Op], bool], ...]:
        """(weight, how to draw it, whether it is possible now), the simplest first.

        Weights were tuned by counting the modes of some thousand programs: each of EAGLE is above 2.5 % of all steps.
        """
        steps = bool(self.generating) and self.tokens_left > 0
        chunking = self.chunked is not None
        extends = self.tokens_left > 0 and (chunking or self.ledger.rows_free > 0)
        speculative = self.world.is_speculative
        more = 4 if self.is_full else 1  # steps to the limit
        return (
            # A chunked prompt is all but always taken on in the very next step, mixed or not.
            (24 if chunking else 8 if self.running else 24, self._extend, extends),
            (12 * more, self._decode, steps and not speculative),
            (20 * more, self._verify, steps and speculative),
            (60 if chunking else 14, self._mixed, steps and extends and self.world.may_mix),
            (3, self._finish, bool(self.running)),
            (3, self._retract, bool(self.generating)),
            (1, self._idle, True),
        )

    def _extend(self) -> Extend:
        return Extend(self._rows())

    def _mixed(self) -> Mixed:
        return Mixed(self._rows(), self._some(self.generating))

    def _decode(self) -> Decode:
        dead, beside_extend = self._padding()
        numbers = self._some(self.generating)
        room = self.world.max_running_requests - len(numbers)  # ranks are alike
        return Decode(numbers, 0 if beside_extend else min(dead, room), beside_extend)

    def _idle(self) -> Idle:
        dead, beside_extend = self._padding()
        return Idle(dead if beside_extend else min(dead, self.world.max_running_requests), beside_extend if dead else 0)

    def _padding(self) -> tuple[int, int]:
        """Dead rows, and whether another rank extends: now and then, of a rank among several."""
        # Pinned: SGLang's own runner pads by itself, and a scope that is to be exhausted is to stay small. See fuzz.axes.
        if self.world.runner == "real" or self.limits.worlds or self.world.encoder_decoder:
            return 0, 0
        # Halves without graphs know no length for dead rows: SGLang raises, and the program ends there.
        if not self.choices.chance(1, 40 if self.world.decode in WITHOUT_GRAPHS else 6):
            return 0, 0
        return self.choices.integer(1, 3), 1 if self.choices.chance(1, 3) else 0

    def _verify(self) -> Verify:
        numbers = self._some(self.generating)
        most = accept_max(self.world)
        if self.world.is_ragged:
            return self._ragged_verify(numbers, most)
        accepts = tuple(self.choices.integer(1, most) for _ in numbers)
        if not self.world.has_draft_model:
            return Verify(numbers, accepts, draft_extend=0)
        extend = 0 if self.choices.chance(1, 8) else 1
        # A draft of one step is drawn from what the model gave before: nothing is decoded.
        decodes = self.world.spec_steps > 1 and self.choices.chance(2, 3)
        dead = min(self._padding()[0], self.world.max_running_requests - len(numbers))
        return Verify(numbers, accepts, extend, draft_decode=1 if decodes else 0, dead=dead)

    def _ragged_verify(self, numbers: tuple[int, ...], width: int) -> Verify:
        """A part of each request's draft is verified, or now and then, as until SGLang's planner is sure of it, all."""
        lens = tuple(self.choices.integer(1, width) for _ in numbers) if self.choices.chance(5, 6) else ()
        accepts = tuple(self.choices.integer(1, most) for most in lens or (width,) * len(numbers))
        return Verify(numbers, accepts, draft_extend=0, verify_lens=lens)

    def _finish(self) -> Finish:
        # One request at most times: the others go on beside the freed slots.
        everyone = len(self.running) > 1 and self.choices.chance(1, 4)
        numbers = tuple(self.running) if everyone else (self.choices.pick(self.running),)
        return Finish(numbers, keep=1 if self.choices.chance(2, 3) else 0)

    def _retract(self) -> Retract:
        return Retract((self.choices.pick(self.generating),))

    def _generating(self) -> list[int]:
        """Requests that can take one more step without leaving their length limit or their row."""
        numbers = [number for number in self.running if self.ledger.can_generate(number)]
        if not self.world.is_speculative or self.limits.row_overflow:
            return numbers
        row_width = self.world.context_len + 4 + self.world.spec_draft_tokens
        return [number for number in numbers if self.ledger.reserved(number) <= row_width]

    def _some(self, numbers: list[int]) -> tuple[int, ...]:
        """All of ``numbers``, as the scheduler does, or now and then (micro-batches) a part of them."""
        if len(numbers) == 1 or not self.choices.chance(1, 6):
            return tuple(numbers)
        chosen = tuple(number for number in numbers if self.choices.chance(1, 2))
        return chosen or (numbers[0],)

    def _rows(self) -> tuple[Row, ...]:
        """The chunked request's next chunk, then retracted and new requests; the last may be cut short."""
        ledger, choices = self.ledger, self.choices
        rows: list[Row] = []
        free = ledger.rows_free
        if self.chunked is not None:
            rows.append(self._row(self.chunked, may_cut=True))
            # A chunk that leaves more to come has used up the batch's budget.
            free = 0 if rows[0].more else choices.integer(0, min(free, 1))
        else:
            free = choices.weigh([(3 - count // 2, count) for count in (1, 2, 3) if count <= free])
        waiting = ledger.numbers(State.RETRACTED)
        fresh = max(ledger.requests, default=-1) + 1
        while free and not (rows and rows[-1].more):
            free -= 1
            if waiting and choices.chance(7, 8):
                number = waiting.pop(0)
            else:
                number, fresh = fresh, fresh + 1
            rows.append(self._row(number, may_cut=not free))
        return tuple(rows)

    def _row(self, number: int, may_cut: bool) -> Row:
        """One request's row; a chunk of it if ``may_cut``, a page boundary and the choices allow."""
        request = self.ledger.requests.get(number)
        done, owed = (request.length, request.owed) if request is not None else (0, 0)
        most = (owed or input_max(self.world)) - done
        source, cached = (None, 0) if done else self._prefix(most - 1, request)
        encoder = self._encoder(request, source, most)
        new = 0 if cached else encoder
        done, most = done + cached, most - cached
        chunks = self._chunks(done, most) if may_cut and not self.world.encoder_decoder else range(0)
        if chunks and self.choices.chance(1, 4):
            return Row(number, self.choices.pick(chunks), source, cached, more=1)
        if owed:
            tokens = most
        elif self.is_full:
            tokens = max(new + 1, min(most, new + self.tokens_left) - self.choices.integer(0, 2))
        else:
            tokens = new + self._length(min(most - new, max(1, self.tokens_left // 2)))
        return Row(number, tokens, source, cached, encoder=encoder)

    def _encoder(self, request: Request | None, source: int | None, most: int) -> int:
        """How many of a prompt's up to ``most`` tokens are an encoder's: half of them at most, where it is new."""
        if not self.world.encoder_decoder:
            return 0
        known = request if source is None else self.ledger.requests[source]
        if known is not None:
            return known.encoder
        # In one batch there may be prompts with an image and without.
        return 0 if self.choices.chance(1, 5) else self._length(most // 2)

    def _chunks(self, done: int, most: int) -> range:
        """Lengths of a chunk that ends on a page and leaves one of ``most`` tokens, a few pages long at most."""
        page = self.world.page_size
        first = page - done % page
        # Chunks are to be many, not long: of large pages one.
        return range(first, min(most, first + max(8, min(3 * page, 64))), page)

    def _prefix(self, most: int, request: Request | None) -> tuple[int | None, int]:
        """Whose KV a new prompt, or that of a retracted ``request``, hits, and how many tokens of it, up to ``most``."""
        page, requests = self.world.page_size, self.ledger.requests
        least = {number: max(page, one.encoder) for number, one in requests.items()}  # an encoder is known as a whole
        sources = [
            number
            for number, one in requests.items()
            if min(self.ledger.cacheable(number), most) >= least[number]
            if request is None or request.encoder == one.encoder
        ]
        if not sources or not self.choices.chance(2, 3):
            return None, 0
        source = self.choices.pick(sources)
        pages = min(self.ledger.cacheable(source), most) // page
        # Either a drawn number of pages or all there are: the longest hit is the usual one.
        part = pages > 1 and self.choices.chance(1, 2)
        return source, page * (self.choices.integer(least[source] // page, pages) if part else pages)

    def _length(self, most: int) -> int:
        """A length from 1 to ``most``: an interesting one or any."""
        interesting = [length for length in self.lengths if length <= most]
        if len(interesting) < most and self.choices.chance(1, 3):
            return self.choices.integer(1, most)
        return self.choices.pick(interesting)
