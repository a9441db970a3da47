"""DeepSeek's attention without absorption: when SGLang takes it, and that its projections hand the latent to every head."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs import sglang_dense
from stubs.refusal import Refused
from stubs.rotary import rotary_of
from stubs.world import World

SIZES = ("SGLANG_CHUNKED_PREFIX_CACHE_THRESHOLD", "SGLANG_MAX_KV_CHUNK_CAPACITY")
WORLD = World(prefill="flashinfer", num_heads=2, head_dim=6, kv_lora_rank=4)


class Mixin:
    """SGLang's, as far as these tests need it."""

    def init_mha_forward(self) -> None:
        self.disable_chunked_prefix_cache = False


@pytest.fixture
def attention(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sglang_dense, "find", lambda place: Mixin)
    monkeypatch.setattr(sglang_dense, "load", lambda path: SimpleNamespace(merge_state_v2=None))
    monkeypatch.setattr(sglang_dense, "tell_chunks", lambda world: None)
    return sglang_dense.dense_attention(WORLD, "layer")


def test_every_heads_key_and_value_are_the_latent(attention: Any) -> None:
    row = torch.arange(4.0)[None]
    projected, _ = attention.kv_b_proj(row)
    assert projected.view(1, 2, 8).tolist() == [[[0, 1, 2, 3, 0, 1, 2, 3]] * 2]


def test_a_field_that_a_release_reads_beside_those_is_missed_in_a_class_of_ours(attention: Any) -> None:
    with pytest.raises(AttributeError) as caught:
        _ = attention.of_another_release
    assert type(caught.value.obj).__module__ == "stubs.sglang_dense"


def test_a_release_without_the_class_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang_dense, "find", lambda place: None)
    with pytest.raises(Refused, match="without absorption in its model alone"):
        sglang_dense.dense_attention(WORLD, "layer")


class Fields:
    """SGLang's, one of them."""

    num_prefix_chunks: int | None = None


def chosen(monkeypatch: pytest.MonkeyPatch, prefill: str, method: str) -> Any:
    """What ``method_of`` says where SGLang's handler of ``prefill`` answers ``method``."""
    handlers = {"flashinfer": lambda attention, batch: SimpleNamespace(name=method)}
    registry = SimpleNamespace(AttentionBackendRegistry=SimpleNamespace(get_handler=handlers.__getitem__))
    monkeypatch.setattr(sglang_dense, "load", lambda path: registry)
    monkeypatch.setattr(sglang_dense, "serving", lambda world, mode: prefill)
    return sglang_dense.method_of(SimpleNamespace(), WORLD, SimpleNamespace(forward_mode="extend"))


def test_the_handler_of_the_serving_backend_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, "flashinfer", "MHA_ONE_SHOT") == (
        "forward_normal_one_shot_prepare",
        "forward_normal_one_shot_core",
    )


def test_what_it_answers_of_other_kinds_is_absorbed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, "flashinfer", "MLA") is None


def test_backends_that_attend_to_absorbed_prompts_are_asked_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, "triton", "MHA") is None


def test_what_is_drawn_stays_as_it_is() -> None:
    def prepare(positions: Any, hidden: Any, batch: Any, allocator: None) -> Any:
        hidden[0].zero_()
        hidden[1].zero_()
        return (positions,)

    layer = SimpleNamespace(layer_id=1)
    attention = SimpleNamespace(attn_mha=layer, prepare=prepare, core=lambda positions: positions)
    q, rows = torch.ones(1, 2, 6), torch.ones(1, 6)
    assert sglang_dense.attend_densely(attention, ("prepare", "core"), q, rows, SimpleNamespace(positions=7)) == 7
    assert (float(q.sum()), float(rows.sum())) == (12.0, 6.0)


def test_a_model_that_rotates_gets_what_is_not_rotated_yet() -> None:
    world = World(num_heads=2, head_dim=6, kv_lora_rank=4, kv_dtype="fp8_e4m3")
    given: list[Any] = []
    attention = SimpleNamespace(
        attn_mha=SimpleNamespace(layer_id=1),
        rotary_emb=rotary_of(world),
        kv_lora_rank=4,
        prepare=lambda positions, hidden, batch, allocator: given.append(hidden) or (),
        core=lambda: None,
    )
    q, rows = torch.arange(12.0).view(1, 2, 6), torch.arange(6.0)[None]
    batch = SimpleNamespace(positions=torch.tensor([1]))
    sglang_dense.attend_densely(attention, ("prepare", "core"), q, rows, batch)
    ((q_given, rows_given),) = given
    assert q_given.tolist() == [[[0, 1, 2, 3, 5, -4], [6, 7, 8, 9, 11, -10]]]
    assert rows_given.tolist() == [[0, 1, 2, 3, 5, -4]]
    assert rows.tolist() == [[0, 1, 2, 3, 4, 5]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Tells SGLang of a world's chunks, after those of another: what the process holds then."""

    def tell(prefix_chunk: int, **names: int) -> list[str | None]:
        monkeypatch.setattr(sglang_dense, "load", lambda path: SimpleNamespace(envs=SimpleNamespace(**names)))
        sglang_dense.tell_chunks(World(kv_lora_rank=4, head_dim=8, prefix_chunk=prefix_chunk))
        return [os.environ.get(name) for name in SIZES]

    for name in SIZES:
        monkeypatch.setenv(name, "9")
    return tell


def test_sglang_is_told_the_size_of_chunks(told: Any) -> None:
    assert told(7, SGLANG_MAX_KV_CHUNK_CAPACITY=0) == ["1", "7"]


def test_a_world_without_has_sglangs_own_sizes(told: Any) -> None:
    assert told(0) == [None, None]


def test_a_release_that_cannot_be_told_is_refused(told: Any) -> None:
    with pytest.raises(Refused, match="this release has no SGLANG_MAX_KV_CHUNK_CAPACITY"):
        told(7)
    assert [os.environ.get(name) for name in SIZES] == [None, None]


@pytest.mark.parametrize(("layer", "left"), [(0, None), (1, 3)])
def test_the_first_layer_of_a_forward_begins_anew(
    monkeypatch: pytest.MonkeyPatch, layer: int, left: int | None
) -> None:
    monkeypatch.setattr(sglang_dense, "find", lambda place: Fields)
    batch = SimpleNamespace(positions=7, num_prefix_chunks=3)
    attention = SimpleNamespace(
        attn_mha=SimpleNamespace(layer_id=layer), prepare=lambda *given: given, core=lambda *given: given
    )
    sglang_dense.attend_densely(attention, ("prepare", "core"), torch.ones(1), torch.ones(1), batch)
    assert batch.num_prefix_chunks == left
