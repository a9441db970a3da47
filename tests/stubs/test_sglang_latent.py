"""How a model with latent attention calls its layers is told by the backend that serves the step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stubs import sglang_latent, sglang_memory
from stubs.refusal import Refused
from stubs.rotary import Rotary
from stubs.world import World

WORLD = World(prefill="fa3", decode="triton", head_dim=12, kv_lora_rank=8, spec_mode="decode")
STAMPED = SimpleNamespace(prefill_attention_backend_str="triton", decode_attention_backend_str="triton")


def batch(name: str) -> Any:
    """A batch in the mode that ``name`` asks for."""
    mode = SimpleNamespace(
        is_decode_or_idle=lambda: name == "decode_or_idle",
        is_target_verify=lambda: name == "target_verify",
        is_draft_extend_v2=lambda: name == "draft_extend_v2",
    )
    return SimpleNamespace(forward_mode=mode)


@pytest.mark.parametrize(
    ("mode", "spec_mode", "backend", "expected"),
    [
        ("extend", "decode", None, True),
        ("extend", "decode", STAMPED, False),
        ("decode_or_idle", "decode", None, False),
        ("target_verify", "decode", None, False),
        ("target_verify", "prefill", None, True),
        ("draft_extend_v2", "decode", None, False),
        ("draft_extend_v2", "prefill", None, True),
    ],
)
def test_parts_go_in_apart_to_listed_backends(
    monkeypatch: pytest.MonkeyPatch, mode: str, spec_mode: str, backend: Any, expected: bool
) -> None:
    found = {"get_attn_backend": lambda: backend, "FORWARD_ABSORB_CORE_ATTENTION_BACKENDS": ["fa3"]}
    monkeypatch.setattr(sglang_latent, "find", lambda *places: found[places[0].partition(":")[2]])
    world = World(prefill="fa3", decode="triton", head_dim=12, kv_lora_rank=8, spec_mode=spec_mode)
    assert sglang_latent.takes_parts(world, batch(mode)) is expected


def test_the_config_scales_logits_as_the_layers_do() -> None:
    fields = sglang_latent.config_fields(WORLD)
    assert (fields["qk_nope_head_dim"], fields["qk_rope_head_dim"], fields["kv_lora_rank"]) == (8, 4, 8)


def test_rows_of_latent_kv_are_moved() -> None:
    pool = SimpleNamespace(kv_buffer=[torch.arange(4), torch.arange(4) * 10])
    sglang_memory.move_kv(pool, torch.tensor([1]), torch.tensor([3]))
    assert [buffer.tolist() for buffer in pool.kv_buffer] == [[0, 3, 2, 3], [0, 30, 20, 30]]


class Model:
    """SGLang's, as far as it is asked."""

    def _fuse_rope_for_trtllm_mla(self, forward_batch: Any) -> bool:
        return self.current_attention_backend == "trtllm_mla" and self.rotary_emb is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize(("decode", "expected"), [("trtllm_mla", True), ("triton", False)])
def test_who_rotates_is_the_models_choice(monkeypatch: pytest.MonkeyPatch, decode: str, expected: bool) -> None:
    monkeypatch.setattr(sglang_latent, "find", lambda *places: Model if len(places) > 1 else None)
    world, rotary = World(prefill="fa3", decode=decode), Rotary(torch.zeros(1, 2))
    assert sglang_latent.fuses_rope(world, rotary, batch("decode_or_idle")) is expected


def test_a_release_that_does_not_say_who_rotates_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang_latent, "find", lambda *places: None)
    with pytest.raises(Refused, match="does not say by _fuse_rope_for_trtllm_mla"):
        sglang_latent.fuses_rope(WORLD, Rotary(torch.zeros(1, 2)), batch("decode_or_idle"))
