"""The numeric oracle over a pool of fp8: whose rounding is right, and which scale was left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuzz.oracle import numeric
from fuzz.oracle.rule import Rule
from fuzz.oracle.truth import held
from stubs.live import History
from stubs.world import World
from tests.fuzz.oracle.planted_output import CAUSAL, DIM, KV_HEADS, Case, in_fp8, mask, signatures


@pytest.mark.parametrize(("held", "kind"), [(1, "stored_kv_wrong"), (2, "")])
def test_own_kv_is_read_from_the_pool_too_where_it_is_explained_by_what_that_holds(held: int, kind: str) -> None:
    """All KV of the request lies there divided by ``held`` and is read times its scale of 2."""
    case = Case(3, 2, dtype="bfloat16", kv_dtype="fp8_e4m3", kv_scale=16)
    case.k, case.v = in_fp8(case.k), in_fp8(case.v)
    live, truth = case.rows[1].live, History(in_fp8(case.history.k), in_fp8(case.history.v))
    live.slots, pool = [6, 1, 4, 2, 3], [torch.zeros(8, KV_HEADS, DIM, dtype=torch.uint8) for _ in "KV"]
    own = [t[2:].reshape(2, KV_HEADS, DIM) for t in (case.k, case.v)]
    read = []
    for buffer, rows, scale in zip(
        pool, (torch.cat(pair) for pair in zip((truth.k, truth.v), own)), (2, 4), strict=True
    ):
        divided = scale if held == 2 else 1
        buffer[live.slots] = (rows / divided).to(torch.float8_e4m3fn).view(torch.uint8)
        read.append(rows / divided * scale)
    case.pool = SimpleNamespace(k_buffer=pool[:1], v_buffer=pool[1:], dtype=torch.float8_e4m3fn)
    given = case.k.clone(), case.v.clone()
    case.k[2:], case.v[2:] = (rows[3:].reshape(2, -1) for rows in read)
    live.target = [History(read[0][:3], read[1][:3])]
    out = case.output(mask(CAUSAL))
    (case.k, case.v), live.target = given, [truth]
    assert signatures(case.judge(out)) == ([f"numeric/{kind}/Leaf.forward_extend"] if kind else [])


def test_a_latent_row_in_the_pool_is_key_and_value() -> None:
    world = World(head_dim=12, kv_lora_rank=8, num_kv_heads=1, dtype="bfloat16", kv_dtype="fp8_e4m3", kv_scale=16)
    rows = torch.arange(24.0).view(2, 1, 12)
    pool = SimpleNamespace(kv_buffer=[torch.zeros(4, 1, 12, dtype=torch.uint8)], dtype=torch.float8_e4m3fn)
    pool.kv_buffer[0][[3, 1]] = rows.to(torch.float8_e4m3fn).view(torch.uint8)
    plan = SimpleNamespace(runner=SimpleNamespace(token_to_kv_pool=pool))
    row, tap = SimpleNamespace(prefix=1, count=1, live=SimpleNamespace(slots=[3, 1])), SimpleNamespace(layer_index=0)
    read = [
        held(SimpleNamespace(world=world, plan=plan), tap, row, Rule(pool=pool_as))  # type: ignore[arg-type]
        for pool_as in ("scaled", "unscaled", "keys")
    ]
    as_held = rows.to(torch.float8_e4m3fn).float()
    assert [torch.equal(one.k, scale * as_held) for one, scale in zip(read, (2, 1, 2), strict=True)] == [True] * 3
    values = as_held[..., :8]
    assert [torch.equal(one.v, scale * values) for one, scale in zip(read, (2, 1, 1), strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("first", "rounding", "seen", "found"),
    [
        (17, torch.float8_e4m3fn, CAUSAL, []),  # 17 becomes 16
        # So does 18, but not in the pool's fp8.
        (18, torch.float8_e5m2, CAUSAL, ["numeric/wrong_output/Leaf.forward_extend"]),
        (17, torch.float8_e4m3fn, "11010 11011", ["numeric/newest_prefix_key_unseen/Leaf.forward_extend"]),
    ],
)
def test_queries_may_be_rounded_as_a_pool_of_fp8_is(
    first: int, rounding: torch.dtype, seen: str, found: list[str]
) -> None:
    """Of two keys the first has most of the weight, where queries are as they were given, else half of it."""
    case = Case(3, 2, dtype="bfloat16", kv_dtype="fp8_e4m3")
    newest = 9 if found and "newest" in found[0] else 0
    keys, values = torch.zeros(2, 3, KV_HEADS, DIM, dtype=torch.bfloat16)
    keys[0, :, 0], keys[1, :, 1], keys[2, :, 0] = 8, 8, newest
    values[0], values[1], values[2] = 4, -4, 8
    case.rows[1].live.target = [History(keys, values)]
    case.k, case.v, queries = torch.zeros_like(case.k), in_fp8(case.v), torch.zeros_like(case.q)
    queries[2:, 0::DIM], queries[2:, 1::DIM] = first, 16
    case.q = queries.to(rounding).to(queries.dtype)
    out = case.output(mask(seen))
    case.q = queries
    assert signatures(case.judge(out)) == found


@pytest.mark.parametrize(("share", "kind"), [(0.85, "newest_prefix_key_unseen"), (0.7, "wrong_output")])
def test_a_rule_over_fp8_is_far_nearer_than_the_truth(share: float, kind: str) -> None:
    """The output lies ``share`` of the way from the truth to the rule: within the rule's tolerance both times."""
    case = Case(3, 2, dtype="bfloat16", kv_dtype="fp8_e4m3")
    case.k, case.v = in_fp8(case.k), in_fp8(case.v)
    keys = case.history.k.clone()
    keys[2] *= -0.5
    case.rows[1].live.target = [History(in_fp8(keys), in_fp8(case.history.v))]
    right, wrong = case.output(mask(CAUSAL)), case.output(mask("11010 11011"))
    assert signatures(case.judge(right + share * (wrong - right))) == [f"numeric/{kind}/Leaf.forward_extend"]


def test_a_token_that_a_rule_leaves_within_its_tolerance_tells_for_the_rule_too() -> None:
    """Of a request that halves of a batch may share the first token is nearly right under the rule, the second is not."""
    case = Case(3, 2, wrapper="tbo", dtype="bfloat16", kv_dtype="fp8_e4m3")
    keys, values = torch.zeros(2, 3, KV_HEADS, DIM, dtype=torch.bfloat16)
    values[1], values[2] = 1, -2  # the first token sees little of the newest key, the second much
    keys[2, :, 0] = 8
    case.rows[1].live.target = [History(keys, values)]
    case.k, case.v, case.q = (torch.zeros_like(one) for one in (case.k, case.v, case.q))
    case.q[2:, 0::DIM] = torch.tensor([[-0.6], [0.02]])
    right, out = case.output(mask(CAUSAL)), case.output(mask("11010 11011"))
    off = (right - out)[2:].abs().amax(dim=1).tolist()
    assert 4 * off[0] > off[1] > 0.15 > off[0]
    assert signatures(case.judge(out)) == ["numeric/newest_prefix_key_unseen/Leaf.forward_extend"]


@pytest.mark.parametrize(
    ("of_scales", "kind"), [({"sees_future": True}, "newest_prefix_key_unseen"), ({"keys_hidden": 1}, "of_scales")]
)
def test_of_a_rule_of_scales_and_another_the_nearer_has_the_name(
    of_scales: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none is nearer it is that of scales."""
    case = Case(3, 2, dtype="bfloat16", kv_dtype="fp8_e4m3", kv_scale=16)
    case.k, case.v = in_fp8(case.k), in_fp8(case.v)
    case.rows[1].live.target = [History(in_fp8(case.history.k), in_fp8(case.history.v))]
    case.rows[1].live.slots = [6, 1, 4, 2, 3]
    buffers = [[torch.zeros(8, KV_HEADS, DIM, dtype=torch.uint8)] for _ in "KV"]
    case.pool = SimpleNamespace(k_buffer=buffers[0], v_buffer=buffers[1], dtype=torch.float8_e4m3fn)
    monkeypatch.setattr(numeric, "_of_scales", lambda view, wrong: Rule(("of_scales",), **of_scales))
    out = case.output(mask("11010 11011"))
    assert signatures(case.judge(out)) == [f"numeric/{kind}/Leaf.forward_extend"]
