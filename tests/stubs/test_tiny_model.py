"""The tiny model's configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stubs.tiny_model import write_tiny_draft, write_tiny_model
from stubs.world import World


def test_the_config_has_the_worlds_geometry(tmp_path: Path) -> None:
    folder = write_tiny_model(World(num_heads=4, num_kv_heads=2, head_dim=32, num_layers=3, context_len=96), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "num_hidden_layers")
    assert [config[name] for name in names] == [128, 4, 2, 32, 3]
    assert config["max_position_embeddings"] == 96


def test_the_draft_has_one_layer(tmp_path: Path) -> None:
    config = json.loads((write_tiny_draft(World(num_layers=3), tmp_path) / "config.json").read_text())
    assert (config["architectures"], config["num_hidden_layers"]) == (["LlamaForCausalLMEagle"], 1)


def test_a_window_is_turned_down_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sliding_window=8"):
        write_tiny_model(World(sliding_window=8), tmp_path)
