"""The oracles over layers of cross attention: what each query sees there, whose rows are whose, and names of what is wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuzz.oracle.bounds import slot_policies
from fuzz.oracle.numeric import matches_reference
from fuzz.oracle.state import kv_written_where_told
from fuzz.oracle.view import Fault, StepView
from stubs.live import History
from stubs.plan import RowPlan
from stubs.tap import Tap
from stubs.world import World
from tests.fuzz.oracle.planted_output import Leaf, draw, signatures

WORLD = World(encoder_decoder=1, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=8)
SLOTS = [5, 2, 7, 1, 6, 3, 9]  # of the request that has an encoder: three tokens of it, then four of its own


class Step:
    """One step of two layers: a request of text alone extends by 2, then one by 2 after an encoder's 3 and ``before`` more.

    Of the second the encoder runs in this step where ``before`` is 0. Queries, keys and values are drawn.
    """

    def __init__(self, before: int = 0) -> None:
        self.before, count = before, 2
        fresh = 3 if before == 0 else 0
        text = SimpleNamespace(request_id=0, slots=[4, 8], target=[empty(), empty()])
        image = SimpleNamespace(request_id=1, slots=SLOTS[: 3 + before + count], target=[])
        self.rows = (
            RowPlan(text, 0, 2, 0),  # type: ignore[arg-type]
            RowPlan(image, 2, count, 3 + before, encoder=3, encoded_at=0 if fresh else None),  # type: ignore[arg-type]
        )
        self.q = draw(4, 16, seed=1)
        self.given = {0: (draw(4, 8, seed=2), draw(4, 8, seed=3)), 1: (draw(fresh, 8, seed=4), draw(fresh, 8, seed=5))}
        known = {
            0: (torch.cat([torch.zeros(3, 8), draw(before, 8, seed=6)]),) * 2,
            1: (draw(3 - fresh, 8, seed=7),) * 2,
        }
        image.target = [History(*(tensor.view(-1, 1, 8) for tensor in known[layer])) for layer in (0, 1)]
        self.keys = {
            0: [torch.cat([known[0][i][3:], self.given[0][i][2:]]) for i in (0, 1)],
            1: [torch.cat([known[1][i], self.given[1][i]]) for i in (0, 1)],
        }

    def naive(self, layer: int, seen: str, *, text: bool = True) -> torch.Tensor:
        """[4, 16]: every query one by one, our request's over those of ``keys`` that ``seen`` has a 1 for."""
        out = torch.zeros(4, 2, 8, dtype=torch.float64)
        q = self.q.double().view(4, 2, 8)
        if layer == 0 and text:
            for i in range(2):
                out[i] = one(q[i], *(self.given[0][half][: i + 1] for half in (0, 1)))
        for i, row in enumerate(seen.split()):
            chosen = [index for index, mark in enumerate(row) if mark == "1"]
            out[2 + i] = one(q[2 + i], *(self.keys[layer][half][chosen] for half in (0, 1)))
        return out.float().flatten(1)

    def judge(self, layer: int, out: torch.Tensor) -> list[Fault]:
        mode = SimpleNamespace(is_decode=lambda: False)
        plan = SimpleNamespace(
            mode="extend", on_draft=False, rows=self.rows, tokens=4, graph=None,
            forward_batch=SimpleNamespace(forward_mode=mode), runner=SimpleNamespace(token_to_kv_pool=self.pool),
        )  # fmt: skip
        taps = [Tap(layer, self.q, *self.given[layer], out)]
        return matches_reference(StepView(WORLD, plan, taps, [], {}, {}, None, Leaf()))  # type: ignore[arg-type]

    @property
    def pool(self) -> Any:
        """[10 slots] a layer: what the step and those before it stored, and 50 in every other slot."""
        buffers = {half: [torch.full((10, 1, 8), 50.0) for _ in range(2)] for half in (0, 1)}
        image = self.rows[1].live.slots
        for half in (0, 1):
            buffers[half][0][image[3:]] = self.keys[0][half].view(-1, 1, 8)
            buffers[half][0][[4, 8]] = self.given[0][half][:2].view(-1, 1, 8)
            buffers[half][1][image[:3]] = self.keys[1][half].view(-1, 1, 8)
        return SimpleNamespace(k_buffer=buffers[0], v_buffer=buffers[1])


def empty() -> History:
    return History(torch.zeros(0, 1, 8), torch.zeros(0, 1, 8))


def one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One query [2 heads, 8] over keys and values [n, 8] that both heads share."""
    weights = torch.softmax(q @ k.double().T / 8**0.5, dim=-1)
    return weights @ v.double()


OWN = {0: "10 11", 1: "110 111", 2: "1110 1111"}  # of the second request's own tokens, after so many more


@pytest.mark.parametrize("before", [0, 1])
def test_its_own_tokens_in_one_layer_and_all_of_the_encoders_in_the_other(before: int) -> None:
    step = Step(before)
    assert step.judge(0, step.naive(0, OWN[before])) == []
    assert step.judge(1, step.naive(1, "111 111")) == []


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize(
    ("layer", "seen", "kind"),
    [
        (1, "110 111", "encoder_masked"),
        (1, "110 110", "newest_prefix_key_unseen"),
        (1, "011 011", "wrong_output"),
        (0, {0: "11 11", 1: "111 111"}, "causal_mask_ignored"),
        (0, {0: "10 01", 1: "010 011"}, None),
    ],
)
def test_what_is_wrong_has_a_name(before: int, layer: int, seen: str | dict[int, str], kind: str | None) -> None:
    step = Step(before)
    found = signatures(step.judge(layer, step.naive(layer, seen if isinstance(seen, str) else seen[before])))
    wanted = kind or {0: "wrong_output", 1: "prefix_ignored"}[before]
    assert found == [f"numeric/{wanted}/Leaf.forward_extend"]


@pytest.mark.parametrize(("layer", "before", "read"), [(0, 0, (1, 2)), (1, 2, (4, 4))])
def test_who_takes_the_encoders_place_for_the_requests_own_is_told(
    layer: int, before: int, read: tuple[int, int]
) -> None:
    """As many slots as it has tokens of its own are read, from the first of its row on."""
    step = Step(before)
    pool, q = step.pool, step.q.double().view(4, 2, 8)
    out = step.naive(layer, "1 1").double().view(4, 2, 8)  # of the other request; ours comes now
    for i, count in enumerate(read):
        held = (half[layer][SLOTS[:count]].view(-1, 8) for half in (pool.k_buffer, pool.v_buffer))
        out[2 + i] = one(q[2 + i], *held)
    assert signatures(step.judge(layer, out.float().flatten(1))) == ["numeric/encoder_ignored/Leaf.forward_extend"]


def test_a_request_without_an_encoder_gets_0_of_it() -> None:
    step = Step()
    out = step.naive(1, "111 111")
    out[0] = 1.0
    assert signatures(step.judge(1, out)) == ["numeric/wrong_output/Leaf.forward_extend"]


@pytest.mark.parametrize(("before", "written"), [(0, [2, 5, 7]), (1, [])])
def test_each_layer_has_rows_of_its_own(before: int, written: list[int]) -> None:
    step = Step(before)
    runner = SimpleNamespace(token_to_kv_pool=step.pool, world=WORLD)
    plan: Any = SimpleNamespace(mode="extend", runner=runner, rows=step.rows, graph=None, may_pad=False)
    policies = {policy.name: policy for policy in slot_policies(plan)}
    for half in "KV":
        own, cross = policies[f"{half} of layer 0"], policies[f"{half} of layer 1"]
        ours = sorted(SLOTS[3 : 5 + before])
        assert own.readable.nonzero()[0].tolist() == sorted([4, 8, *ours])
        assert own.writable.nonzero()[0].tolist() == sorted([4, 8, *SLOTS[3 + before : 5 + before]])
        assert cross.readable.nonzero()[0].tolist() == [2, 5, 7]
        assert cross.writable.nonzero()[0].tolist() == written


@pytest.mark.parametrize(
    ("layer", "slot", "kind"),
    [(1, SLOTS[0], "kv_not_written"), (1, SLOTS[3], "stray_kv_write"), (0, SLOTS[0], "stray_kv_write")],
)
def test_what_is_stored_in_the_others_place_is_found(layer: int, slot: int, kind: str) -> None:
    step = Step()
    pool = step.pool
    before = [torch.full((10, 1, 8), 50.0) for _ in range(4)]
    mode = SimpleNamespace(is_decode=lambda: False)
    plan: Any = SimpleNamespace(
        mode="extend", on_draft=False, rows=step.rows, tokens=4, graph=None, may_pad=False,
        forward_batch=SimpleNamespace(forward_mode=mode), runner=SimpleNamespace(token_to_kv_pool=pool),
    )  # fmt: skip
    taps = [Tap(index, step.q, *step.given[index], step.q) for index in (0, 1)]
    view = StepView(WORLD, plan, taps, before, {}, {}, None, Leaf())
    assert kv_written_where_told(view) == []
    pool.k_buffer[layer][slot] = 7.0
    assert signatures(kv_written_where_told(view)) == [f"state/{kind}/Leaf.forward_extend"]
