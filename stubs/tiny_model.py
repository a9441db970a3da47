"""Writes the config.json of a tiny Llama with a world's geometry, which SGLang loads with dummy weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stubs.world import World

VOCAB_SIZE = 128  # the smallest that SGLang's vocabulary padding (64) leaves as it is, with ids to spare
DRAFT_LAYERS = 1  # EAGLE drafts with one layer


def write_tiny_model(
    world: World, folder: Path, architecture: str = "LlamaForCausalLM", fields: Mapping[str, Any] | None = None
) -> Path:
    """Write the target model's ``folder``/target/config.json, ``fields`` added; return the folder to hand to SGLang."""
    return _write(folder / "target", architecture, world.num_layers, world, fields or {})


def write_tiny_draft(
    world: World, folder: Path, architecture: str = "LlamaForCausalLMEagle", fields: Mapping[str, Any] | None = None
) -> Path:
    """Write the EAGLE draft's ``folder``/draft/config.json, ``fields`` added; return the folder to hand to SGLang."""
    return _write(folder / "draft", architecture, DRAFT_LAYERS, world, fields or {})


def tiny_config(world: World, architecture: str = "LlamaForCausalLM", layers: int | None = None) -> dict[str, Any]:
    """The config.json of a Llama with the world's geometry; ``layers`` defaults to the world's."""
    if world.sliding_window or world.logit_cap:
        raise ValueError(
            f"world has sliding_window={world.sliding_window}, logit_cap={world.logit_cap}; the tiny Llama of the real "
            "runner has neither: set both to 0 or use runner 'fake'"
        )
    hidden = world.num_heads * world.head_dim
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_attention_heads": world.num_heads,
        "num_key_value_heads": world.num_kv_heads,
        "head_dim": world.head_dim,
        "num_hidden_layers": world.num_layers if layers is None else layers,
        "vocab_size": VOCAB_SIZE,
        "intermediate_size": hidden,
        "max_position_embeddings": world.context_len,
        "torch_dtype": world.dtype,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def _write(folder: Path, architecture: str, layers: int, world: World, fields: Mapping[str, Any]) -> Path:
    config = tiny_config(world, architecture, layers) | dict(fields)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return folder
