"""Rules of a World: what is refused, in which words."""

from __future__ import annotations

import pytest

from stubs.world import World, WorldError


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "world is list; expected an object"),
        ({"pages": 4}, "world has the unknown field 'pages'"),
        ({"page_size": "4"}, "world.page_size is '4'; expected int"),
        ({"page_size": True}, "world.page_size is True; expected int"),
        ({"prefill": 3}, "world.prefill is 3; expected str"),
        ({"dtype": "int8"}, "world.dtype is 'int8'; expected one of 'float32', 'float16', 'bfloat16'"),
        ({"runner": "x"}, "world.runner is 'x'; expected one of 'fake', 'real'"),
        ({"device": "tpu"}, "world.device is 'tpu'; expected one of 'cpu', 'cuda'"),
        ({"layout": "x"}, "world.layout is 'x'; expected one of 'contiguous', 'shuffled', 'interleaved', 'descending'"),
        (
            {"spec_algorithm": "X"},
            "world.spec_algorithm is 'X'; expected one of '', 'EAGLE', 'NGRAM', 'DFLASH', 'DSPARK'",
        ),
        ({"spec_mode": "both"}, "world.spec_mode is 'both'; expected one of 'prefill', 'decode'"),
        ({"page_size": 0}, "world.page_size is 0; expected 1..128"),
        ({"kv_dtype": "int4"}, "world.kv_dtype is 'int4'; expected one of 'auto', 'fp8_e4m3', 'fp8_e5m2'"),
        ({"kv_scale": 4}, "world.kv_scale is 4 with kv_dtype 'auto'; expected 0: only fp8 is scaled"),
        (
            {"window_tokens": 64, "sliding_window": 4},
            "world.window_tokens is 64 with window=4 alternate=0 layers=1; expected a window or chunks, on every second of two layers or more",
        ),
        (
            {"kv_lora_rank": 8, "num_heads": 2, "num_kv_heads": 2},
            "world.num_kv_heads is 2 with a kv_lora_rank; expected 1: all share a row",
        ),
        (
            {"kv_lora_rank": 16},
            "world.kv_lora_rank is 16 with head_dim 16; expected fewer: head_dim is the latent and the rotary key",
        ),
        (
            {"kv_lora_rank": 8, "logit_cap": 30},
            "world.logit_cap is 30 with kv_lora_rank 8; expected 0: latent attention runs without it alone yet",
        ),
        ({"prefix_chunk": 7}, "world.prefix_chunk is 7 without kv_lora_rank; expected 0"),
        ({"linear_before": 1}, "world.linear_before is 1 with wrapper ''; expected 0"),
        ({"linear_before": 9, "wrapper": "linear"}, "world.linear_before is 9; expected 0..8"),
        (
            {"linear_before": 1, "wrapper": "linear", "v_head_dim": 8},
            "world.v_head_dim is 8 with linear_before 1; expected 0: no such model has both",
        ),
        (
            {"prefill_graph": 16, "wrapper": "tbo"},
            "world.prefill_graph is 16 with wrapper 'tbo'; expected 0: not tried with it yet",
        ),
        (
            {"prefill_graph": 16, "save_kv_cache": 0},
            "world.prefill_graph is 16 with save_kv_cache 0; expected 0: a graph writes its own KV",
        ),
        (
            {"attention_chunk_size": 6, "page_size": 4},
            "world.attention_chunk_size 6 is no multiple of page 4",
        ),
        (
            {"attention_chunk_size": 8, "sliding_window": 3},
            "world.sliding_window is 3 with attention_chunk_size 8; expected 0: no such model has both",
        ),
        (
            {"attention_chunk_size": 8, "wrapper": "linear"},
            "world.wrapper is 'linear' with attention_chunk_size 8; expected '' or 'tbo': no such model has both",
        ),
        (
            {"encoder_decoder": 1},
            "world.num_layers is 1 with encoder_decoder 1; expected 2 or more: every second is the encoder's",
        ),
        (
            {"encoder_decoder": 1, "num_layers": 2, "page_size": 4},
            "world.page_size is 4 with encoder_decoder 1; expected 1: SGLang takes a decode's last page from the length without the encoder's tokens",
        ),
        (
            {"encoder_decoder": 1, "num_layers": 2, "sliding_window": 3},
            "world.sliding_window is 3 with encoder_decoder 1; expected 0",
        ),
        (
            {"encoder_decoder": 1, "num_layers": 2, "wrapper": "tbo"},
            "world.wrapper is 'tbo' with encoder_decoder 1; expected ''",
        ),
        (
            {"encoder_decoder": 1, "num_layers": 2, "save_kv_cache": 0},
            "world.save_kv_cache is 0 with encoder_decoder 1; expected 1: such a model leaves its KV to its layers",
        ),
        ({"context_len": 7}, "world.context_len is 7; expected 8..65536"),
        ({"overlap": 2}, "world.overlap is 2; expected 0..1"),
        ({"num_heads": 4, "num_kv_heads": 3}, "world.num_heads 4 is no multiple of num_kv_heads 3"),
        ({"page_size": 3}, "world.max_total_tokens 512 is no multiple of page 3"),
        ({"spec_steps": 1}, "world.spec_* are set but spec_algorithm is empty; expected all 0"),
        (
            {"spec_algorithm": "EAGLE"},
            "world speculative steps=0 topk=0 width=0; expected >=1, >=1, >=2",
        ),
        (
            {"spec_algorithm": "EAGLE", "spec_steps": 3, "spec_topk": 1, "spec_draft_tokens": 3},
            "world.spec_draft_tokens is 3; with topk 1 SGLang forces steps + 1 = 4",
        ),
        (
            {"spec_algorithm": "EAGLE", "spec_steps": 2, "spec_topk": 2, "spec_draft_tokens": 8},
            "world.spec_draft_tokens is 8; a tree of steps=2 topk=2 has at most 7",
        ),
    ],
)
def test_what_is_refused(data: object, message: str) -> None:
    with pytest.raises(WorldError) as caught:
        World.from_json(data)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("world", "message"),
    [
        (World(graph_max=1), "world.graph_max is 1 without graphs; expected 0"),
        (World(graph=1, graph_max=5), "world.graph_max 5 is above max_running_requests 4"),
    ],
)
def test_largest_graph_that_cannot_be(world: World, message: str) -> None:
    with pytest.raises(WorldError, match=f"^{message}$"):
        world.check()
