"""The axes of a program: every field of a world and of a step, and whether it is drawn at random or pinned, and why.

A field that is missing here fails the tests: nothing is left out of what is tested without a word.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """``owner`` is World or the class of a step; ``pins`` say where it does not vary, and why."""

    owner: str
    field: str
    pins: tuple[str, ...] = ()
    drawn: bool = True


def _world(field: str, *pins: str) -> Axis:
    return Axis("World", field, pins)


def _given(field: str) -> Axis:
    return Axis("World", field, ("the campaign's to choose, by --pair, --runner and --device",), drawn=False)


REAL = "runner real: its tiny Llama has none"
TREE = "over a tree, NGRAM's too: SGLang defines none, its kernels count rows of the mask and not depths"

RANKS = "of a rank among several: run without a graph"
RANK_DRAFTS = "drafts in steps, and verifies that are not EAGLE's: not padded yet"
REAL_PADS = "runner real: its own runner pads"

AXES: tuple[Axis, ...] = (
    _given("prefill"),
    _given("decode"),
    _given("runner"),
    _given("device"),
    _world("dtype", "kv_dtype fp8: bfloat16, as served"),
    _world("num_heads"),
    _world("num_kv_heads"),
    _world("head_dim"),
    _world("num_layers"),
    _world(
        "page_size", "each backend's own sizes (stubs/page_sizes.py)", "over a tree: 16 at most, each branch has pages"
    ),
    _world("context_len"),
    _world("max_running_requests"),
    _world("max_total_tokens"),
    _world("sliding_window", REAL, TREE),
    _world("logit_cap", REAL, "sinks: the model that has them has no cap"),
    _world("layout"),
    _world("overlap"),
    _world(
        "spec_algorithm",
        REAL,
        "DFLASH: its draft model is not driven, and up to 0.5.13 SGLang prepares its verify where it allocates",
        "DSPARK: compact verifies alone (0.5.16 on), its draft model not driven; static ones are prepared as DFLASH's",
        "EAGLE3, STANDALONE, FROZEN_KV_MTP: verify as EAGLE does; UNO: not tried",
    ),
    _world("spec_mode"),
    _world("spec_steps", "4 at most: each costs a row of every request"),
    _world(
        "spec_topk",
        "3 at most",
        "the layout of a tree's mask: SGLang's to choose, its full one or, where a captured half reads none (0.5.17 on), "
        "of drafted tokens alone; no release chooses the bit-packed one",
    ),
    _world("spec_draft_tokens", "8 at most over a tree"),
    _world("query_scalar", REAL),
    _world("alternate_layers", REAL),
    _world("xai_temperature_len", REAL, TREE, "sliding_window: no model has both"),
    _world("save_kv_cache", REAL, "window_tokens, kv_dtype fp8: tried on one plain pool"),
    _world("deterministic", REAL),
    _world("logit_shift", REAL, "dtype below float32, logit_cap: tells nothing there"),
    _world(
        "graph",
        REAL,
        "window_tokens: the write locations of that pool are the graph runner's affair",
        "kv_dtype fp8 but for latent KV without scales: scaling in place was not looked at under a graph yet",
    ),
    _world("graph_max", "graph 0: there is none then"),
    _world(
        "prefill_graph",
        REAL,
        "device cuda: graphs are captured on the CPU alone",
        "prefill other than fa3 and flashinfer: SGLang plans no such graph for them, and raises",
        "kv_lora_rank: which of its ways to attend SGLang captures hangs on lengths of prefixes; not tried yet",
        "EAGLE, DFLASH, DSPARK: up to 0.5.18 SGLang captures none for EAGLE's target; both want hidden states of it",
        "wrapper, save_kv_cache 0: not tried with it yet",
    ),
    _world("window_tokens", REAL),
    _world("radix_cache", "window_tokens 0 and linear_before 0: it takes away, and adds nothing"),
    _world("sinks", REAL),
    _world(
        "v_head_dim",
        REAL,
        "narrower than head_dim alone, as in the models that have it",
        "wrapper linear: SGLang's pool for such models has one head dim",
    ),
    _world("kv_dtype", REAL, "trtllm_mha on a CPU: SGLang's store of fp8 is compiled with nvcc"),
    _world(
        "kv_scale",
        "powers of two: dividing by one is exact",
        "kv_lora_rank: v_scale is k_scale, for a row is both; SGLang loads two, and its Triton backend reads by both",
    ),
    _world(
        "kv_lora_rank",
        REAL,
        "trtllm_mha: SGLang refuses it; always, where a half serves nothing else (stubs/latent_worlds.py)",
        "drafts: drawn where a half serves nothing else; others are served; what older releases show is to be read first",
        "device cuda, save_kv_cache 0: not tried with it yet",
        "kv_dtype fp8_e5m2: seldom with trtllm_mla and cutedsl_mla, whose arguments SGLang refuses",
        "windows, caps, temperatures, sinks, v_head_dim: no such model has them",
        "query_scalar: the config says how such a model scales, and hotter logits over so wide a row are all rounding",
    ),
    _world("prefix_chunk", "kv_lora_rank 0, and pairs that attend to no prompt without absorption: says nothing there"),
    _world(
        "wrapper",
        REAL,
        "latent attention, window_tokens: not tried with either; nor save_kv_cache 0, or drafts in graphs, with two-batch overlap",
        "NGRAM, DFLASH, DSPARK: SGLang splits EAGLE's verify input alone, and raises over theirs",
        "padded steps: SGLang splits what the scheduler agreed on, which is not driven",
        "linear: its linear layers are planned and not run, for their kernels are none that run on a CPU here",
    ),
    _world(
        "linear_before",
        "3 at most; wrapper linear alone: elsewhere there is no such layer",
        "sinks: no such model has both",
        "with a prefix cache: page size 1 and overlap 0, as SGLang serves such models by default",
    ),
    _world(
        "attention_chunk_size",
        "runner real: served, so that what is found is tried there, and not drawn",
        "fa3, triton and trtllm_mha in both halves: SGLang's check of Llama 4 refuses others",
        "whole pages: SGLang cuts chunks so",
        "windows, caps, temperatures, sinks, v_head_dim, linear layers: no such model has them",
    ),
    _world(
        "encoder_decoder",
        "runner real: its tiny Llama hands K and V of each token to each layer",
        "page_size above 1, and so trtllm_mha: SGLang finds a decode's last page by the length without the encoder's tokens",
        "drafts: SGLang's workers know of no encoder",
        "windows: fa3, flashinfer and triton refuse them with an encoder",
        "caps, temperatures, sinks, v_head_dim, chunks, linear layers: no such model has them",
        "two-batch overlap, prefill_graph: SGLang's wrapper of the one asserts it away, its runner of the other captures none",
        "padded steps, fp8, save_kv_cache 0: not tried with it yet",
    ),
    Axis("Row", "request"),
    Axis("Row", "tokens"),
    Axis("Row", "cached_from"),
    Axis("Row", "cached"),
    Axis("Row", "more", ("encoder_decoder: SGLang cuts no prompt of Mllama into chunks, so no step is mixed there",)),
    Axis("Row", "encoder", ("encoder_decoder 0: there is none", "cached in part: SGLang asserts all of it or nothing")),
    Axis("Extend", "rows"),
    Axis("Mixed", "rows"),
    Axis("Mixed", "requests"),
    Axis("Decode", "requests"),
    Axis("Decode", "dead", (RANKS, REAL_PADS)),
    Axis("Decode", "beside_extend", (RANKS, REAL_PADS)),
    Axis("Idle", "dead", (RANKS, REAL_PADS)),
    Axis("Idle", "beside_extend", (RANKS, REAL_PADS)),
    Axis("Verify", "requests"),
    Axis(
        "Verify",
        "accepts",
        (
            "SGLANG_SIMULATE_ACC_LEN: not set, it forces these counts behind attention, and here they are drawn",
            "over a tree: a path; what that setting keeps there are the first nodes in order, without a move of KV",
        ),
    ),
    Axis("Verify", "draft_extend"),
    Axis("Verify", "draft_decode"),
    Axis("Verify", "dead", (RANKS, RANK_DRAFTS, REAL_PADS)),
    Axis("Verify", "verify_lens", ("spec_algorithm DSPARK alone: no other verifies a part of what is drafted",)),
    Axis("Finish", "requests"),
    Axis("Finish", "keep"),
    Axis("Retract", "requests", ("one at a time: two retracts in a row are the same",), drawn=False),
)
