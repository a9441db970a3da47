"""The lengths oracle: a flag that a wrapper asks by, beside those of the backends under it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fuzz.oracle.lengths import host_lengths_needed
from stubs.world import World


class Hybrid:
    """Two backends and the flag, each True, False, or not there at all."""

    def __init__(self, own: bool | None, prefill: bool | None, decode: bool | None) -> None:
        self.prefill_backend, self.decode_backend = (SimpleNamespace() for _ in range(2))
        for backend, flag in ((self, own), (self.prefill_backend, prefill), (self.decode_backend, decode)):
            if flag is not None:
                vars(backend)["needs_cpu_seq_lens"] = flag


def judge(backend: Any, mode: str = "verify_chain_prefill", **world: Any) -> list[str]:
    view = SimpleNamespace(world=World(**world), plan=SimpleNamespace(mode=mode), backend=backend)
    return [str(fault.signature) for fault in host_lengths_needed(view)]  # type: ignore[arg-type]


def test_a_wrapper_that_asks_for_what_no_backend_needs() -> None:
    assert judge(Hybrid(True, False, False)) == ["state/needless_host_lengths/Hybrid.needs_cpu_seq_lens"]


@pytest.mark.parametrize(
    "flags",
    [(False, False, False), (True, True, False), (True, False, True), (None, None, None), (True, None, False)],
    ids=str,
)
def test_a_wrapper_that_asks_for_what_one_needs_or_for_nothing(flags: tuple[bool | None, ...]) -> None:
    assert judge(Hybrid(*flags)) == []


def test_only_speculative_steps_under_overlap_are_without_host_lengths() -> None:
    hybrid = Hybrid(True, False, False)
    assert judge(hybrid, "decode") == []
    assert judge(hybrid, overlap=0) == []


def test_a_backend_that_wraps_nothing_is_not_judged() -> None:
    assert judge(SimpleNamespace(needs_cpu_seq_lens=True)) == []
