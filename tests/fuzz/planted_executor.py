"""Runs programs as ``fuzz.execute`` does, on a SGLang whose triton backend is led to wrong slots.

The program's seed, modulo the number of plants, says how; 0 is not at all. The request led astray is the first of a
batch. What is tampered with is put back before the oracles look: they see the step's consequences only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from stubs import imports

imports.install()  # what a worker does for its usual executor, before that one is imported

from fuzz import execute as plain
from fuzz.program import Program
from fuzz.trace import Trace
from stubs import sglang
from stubs.fake_server import FakeServer
from stubs.plan import StepPlan

prepare, available_pairs, speculative_modes = plain.prepare, plain.available_pairs, plain.speculative_modes


def execute(program: Program) -> Trace:
    name = list(PLANTS)[program.seed % len(PLANTS)]
    current: list[StepPlan] = []
    backend = sglang.load(f"{sglang.ATTENTION}.triton_backend").TritonAttnBackend
    with ExitStack() as stack:
        for method in ("forward", "replay"):
            stack.enter_context(_replaced(FakeServer, method, _noting(current, name)))
        stack.enter_context(_replaced(backend, "init_forward_metadata", _misled(current, PLANTS[name])))
        return plain.execute(program)


@contextmanager
def _replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    honest = getattr(owner, name)
    setattr(owner, name, wrap(honest))
    try:
        yield
    finally:
        setattr(owner, name, honest)


def _noting(current: list[StepPlan], name: str) -> Callable[[Any], Any]:
    """A server's method that keeps the plan at hand; what is planted outside of the metadata is planted here."""

    def wrap(honest: Any) -> Any:
        def method(self: Any, plan: StepPlan, *rest: Any) -> Any:
            current[:] = [plan]
            if name == "write behind the pool":
                buffer = plan.runner.token_to_kv_pool.k_buffer[0]
                behind = buffer.untyped_storage().nbytes() // buffer.element_size() - 1
                buffer.as_strided((1,), (1,), behind)[0] = 1
            if name != "misplaced slot" or not plan.rows:
                return honest(self, plan, *rest)
            with _entry(plan.forward_batch.out_cache_loc, 0, _free_slot(plan)):
                return honest(self, plan, *rest)

        return method

    return wrap


Plant = Callable[[StepPlan], Any]  # a context to plan the metadata of the step in


def _misled(current: list[StepPlan], plant: Plant | None) -> Callable[[Any], Any]:
    def wrap(honest: Any) -> Any:
        def init_forward_metadata(self: Any, forward_batch: Any) -> Any:
            plan = current[0]
            if plant is None or not plan.rows or not plan.rows[0].prefix:
                return honest(self, forward_batch)
            with plant(plan):
                return honest(self, forward_batch)

        return init_forward_metadata

    return wrap


@contextmanager
def _entry(tensor: Any, place: Any, value: int) -> Iterator[None]:
    """One element holds ``value`` for a while."""
    before = tensor[place].clone()
    tensor[place] = value
    try:
        yield
    finally:
        tensor[place] = before


def _free_slot(plan: StepPlan) -> int:
    """A slot that no request holds: nothing was ever written there, or what it held is gone."""
    return int(plan.runner.token_to_kv_pool_allocator.free_pages[-1]) * plan.runner.page_size


def _last_of_prefix(plan: StepPlan, slot: int) -> Any:
    """The page table says ``slot`` for the last token of the first request's prefix."""
    row = plan.rows[0]
    return _entry(plan.runner.req_to_token_pool.req_to_token, (row.live.row, row.prefix - 1), slot)


def _unwritten_read(plan: StepPlan) -> Any:
    return _last_of_prefix(plan, _free_slot(plan))


def _stale_prefix(plan: StepPlan) -> Any:
    """The slot of another request, as if the row were still that one's; alone in its batch, a free one."""
    others = [row.live.slots[0] for row in plan.rows[1:] if row.live.slots[0] not in plan.rows[0].live.slots]
    return _last_of_prefix(plan, others[0] if others else _free_slot(plan))


@contextmanager
def _length_changed(plan: StepPlan, by: int) -> Iterator[None]:
    """The first request's length is off, in every form in which metadata is made of it."""
    batch = plan.forward_batch
    extends = not batch.forward_mode.is_decode()
    name = "extend_prefix_lens" if extends else "seq_lens"
    mirrors = {key: getattr(batch, key) for key in (f"{name}_cpu", "seq_lens_sum")}
    lengths = getattr(batch, name)
    with _entry(lengths, 0, int(lengths[0]) + by):
        if mirrors[f"{name}_cpu"] is not None:
            setattr(batch, f"{name}_cpu", lengths.tolist() if extends else lengths.cpu().clone())
        if mirrors["seq_lens_sum"] is not None:
            batch.seq_lens_sum += by
        try:
            yield
        finally:
            for key, value in mirrors.items():
                setattr(batch, key, value)


PLANTS: dict[str, Plant | None] = {
    "nothing": None,
    "misplaced slot": None,  # planted where the server is told its locations
    "unwritten read": _unwritten_read,
    "stale prefix": _stale_prefix,
    "length one long": lambda plan: _length_changed(plan, 1),
    "length one short": lambda plan: _length_changed(plan, -1),
    "write behind the pool": None,  # where the server runs a step
}
