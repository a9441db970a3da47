"""How many tokens a request has for those who pad: read from what each release's worker says."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs import sglang_widths
from stubs.refusal import Refused
from stubs.world import World

TREE = World(prefill="triton", decode="triton", spec_algorithm="EAGLE", spec_steps=2, spec_topk=2, spec_draft_tokens=4)


class Old:
    """As the workers of 0.5.7 to 0.5.12 speak, by both names that it had."""

    speculative_num_steps: int

    def verify(self, verify_input: Any) -> None:
        verify_input.num_tokens_per_req = self.speculative_num_steps + 1  # the root, too

    def _draft_extend_for_decode(self, make: Callable[..., Any]) -> None:
        make(
            num_tokens_per_batch=self.speculative_num_steps + 1,
        )


class New:
    """As they speak today."""

    speculative_num_draft_tokens: int

    def verify(self, verify_input: Any) -> None:
        pass

    def _draft_extend_for_decode(self, make: Callable[..., Any]) -> None:
        make(num_tokens_per_req=self.speculative_num_draft_tokens, more=1)


class Strange:
    """As none has spoken yet."""

    something_else: int

    def verify(self, verify_input: Any) -> None:
        verify_input.num_tokens_per_req = self.something_else


@pytest.mark.parametrize(("worker", "verified", "extended"), [(Old, 3, 3), (New, None, 4)])
def test_widths_are_what_the_worker_tells(
    monkeypatch: pytest.MonkeyPatch, worker: type, verified: int | None, extended: int
) -> None:
    monkeypatch.setattr(sglang_widths, "find", lambda place: worker)
    assert (sglang_widths.verify_width(TREE), sglang_widths.draft_extend_width(TREE)) == (verified, extended)


def test_a_width_that_nothing_is_known_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang_widths, "find", lambda place: Strange)
    with pytest.raises(Refused, match="pads to self.something_else tokens a request"):
        sglang_widths.verify_width(TREE)


def test_a_release_without_the_worker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang_widths, "find", lambda place: None)
    with pytest.raises(Refused, match=r"this release has no EAGLEWorkerV2\.verify"):
        sglang_widths.verify_width(TREE)
    monkeypatch.setattr(sglang_widths, "find", lambda place: SimpleNamespace())
    with pytest.raises(Refused, match=r"EagleDraftWorker\._draft_extend_for_decode"):
        sglang_widths.draft_extend_width(TREE)
