"""The frozen start-up geometry that a program runs in: ints and strings only, no SGLang, no torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from stubs import speculation
from stubs.world_rules import fault_of


class WorldError(ValueError):
    """A World that no server could be started with; the message names the field, the value and the rule."""


@dataclass(frozen=True, slots=True)
class World:
    """Geometry of one simulated server.

    Lengths are in tokens, pool sizes in tokens (KV slots), ``sliding_window`` in tokens (0 = none),
    ``logit_cap`` in logits (0 = none). ``prefill`` and ``decode`` are SGLang attention backend names.
    ``layout`` is the order in which free KV pages are handed out. ``overlap`` 1 means overlap scheduling,
    under which SGLang leaves the host mirrors of lengths out when no backend needs them.
    ``query_scalar`` n scales logits by n ** -0.5 (0: by head_dim ** -0.5). ``alternate_layers`` 1: every second layer
    has neither window nor cap. ``xai_temperature_len``: Grok's logit temperature behind so many tokens (0 = none).
    ``save_kv_cache`` 0: the model writes K and V itself, before it calls the layer. ``deterministic`` 1:
    --enable-deterministic-inference. ``logit_shift``: all logits are drawn about so far off 0.
    ``window_tokens``: the size of a pool of their own for the layers that have a window (0 = one pool for all layers).
    ``radix_cache`` 0: no prefix cache, so that requests give back window slots of their prompt too.
    ``v_head_dim``: of the values, where it is not that of the keys, ``head_dim`` (0: it is).
    ``kv_dtype`` of KV in the pool ("auto": the world's), as k / k_scale, for a k_scale of ``kv_scale`` eighths and a v_scale
    of as many quarters (0: none, which is 1); of latent KV both are k_scale.
    ``sinks`` 1: every layer has attention sinks, a logit a head that takes weight and gives no value.
    ``graph`` n: CUDA graphs are captured at every n-th batch size and at the largest, and replayed padded (0 = none).
    ``graph_max``: that largest, as --cuda-graph-max-bs; larger batches are run without (0 = all of max_running_requests).
    ``prefill_graph`` n: whole extends, and mixed steps, are captured at SGLang's own counts of tokens up to n, and replayed
    padded (--cuda-graph-backend-prefill full, --cuda-graph-max-bs-prefill n; 0 = none; releases before 0.5.15 run without).
    ``kv_lora_rank`` C: multi-head latent attention, as DeepSeek's, absorbed where its model does so (0 = none). One row of
    KV serves all heads: C columns of latent, which are the values too, and the rest of ``head_dim`` of rotary key.
    ``prefix_chunk`` n: such a model attends without absorption to prefixes of any length, to longer ones in chunks of n tokens
    (SGLANG_MAX_KV_CHUNK_CAPACITY; 0 = by SGLang's own sizes, which are thousands).
    ``wrapper`` "tbo": two-batch overlap, whose wrapper has a backend for each half of a batch. "linear": of a model that has
    linear layers beside attention, whose wrapper plans for both. ``linear_before`` n: so many of them come before each layer
    of attention (0: all come behind the last), and ``num_layers`` counts those of attention alone.
    ``attention_chunk_size`` n: local attention, as Llama 4 has it: a query sees the keys of its own chunk of n positions alone
    (0 = none); ``alternate_layers`` 1 leaves every second layer without chunks, and ``window_tokens`` pools the others.
    ``encoder_decoder`` 1: a model with an encoder, as Mllama is: every second layer attends, without a causal mask, to what its
    encoder gave for the request, and to that alone; the others to the request's own tokens.
    ``spec_algorithm``: of EAGLE the draft model is driven, too. NGRAM drafts from a corpus of texts, without a model:
    ``spec_topk`` is its breadth, ``spec_steps`` what SGLang makes of both. DFLASH drafts a block of ``spec_draft_tokens``
    at once; its draft model is not driven. Nor is DSPARK's, which drafts a block, too, and of which a verify takes as many
    tokens of each request as is told (SGLANG_RAGGED_VERIFY_MODE compact).
    """

    prefill: str = "triton"
    decode: str = "torch_native"
    runner: str = "fake"
    device: str = "cpu"
    dtype: str = "float32"
    num_heads: int = 2
    num_kv_heads: int = 1
    head_dim: int = 16
    num_layers: int = 1
    page_size: int = 1
    context_len: int = 64
    max_running_requests: int = 4
    max_total_tokens: int = 512
    sliding_window: int = 0
    logit_cap: int = 0
    layout: str = "contiguous"
    overlap: int = 1
    spec_algorithm: str = ""
    spec_mode: str = "prefill"
    spec_steps: int = 0
    spec_topk: int = 0
    spec_draft_tokens: int = 0
    # Fields below came later: `to_json` leaves them out where they have their default.
    query_scalar: int = 0
    alternate_layers: int = 0
    xai_temperature_len: int = 0
    save_kv_cache: int = 1
    deterministic: int = 0
    logit_shift: int = 0
    window_tokens: int = 0
    radix_cache: int = 1
    sinks: int = 0
    v_head_dim: int = 0
    kv_dtype: str = "auto"
    kv_scale: int = 0
    graph: int = 0
    kv_lora_rank: int = 0
    wrapper: str = ""
    graph_max: int = 0
    prefix_chunk: int = 0
    linear_before: int = 0
    prefill_graph: int = 0
    attention_chunk_size: int = 0
    encoder_decoder: int = 0

    @property
    def pair(self) -> str:
        """The two backend names as the command line spells them, PREFILL:DECODE."""
        return f"{self.prefill}:{self.decode}"

    @property
    def v_dim(self) -> int:
        """The head dim of values and outputs."""
        return self.kv_lora_rank or self.v_head_dim or self.head_dim

    @property
    def qk_rope_head_dim(self) -> int:
        """Columns of rotary key in a row of latent KV; 0 without."""
        return self.head_dim - self.kv_lora_rank if self.kv_lora_rank else 0

    @property
    def attention_ids(self) -> tuple[int, ...]:
        """The numbers, among all layers of the model, of its layers of attention."""
        return tuple(range(self.linear_before, self.total_layers, self.linear_before + 1))

    @property
    def linear_ids(self) -> tuple[int, ...]:
        """The numbers of the linear layers that come before one of attention."""
        return tuple(sorted(set(range(self.total_layers)) - set(self.attention_ids)))

    @property
    def total_layers(self) -> int:
        """Layers of attention, and the linear layers before them."""
        return self.num_layers * (self.linear_before + 1)

    @property
    def local_span(self) -> int:
        """How many tokens a layer that does not see all may see: of its window or its chunk; 0 where all see all."""
        return self.sliding_window or self.attention_chunk_size

    @property
    def layer_widths(self) -> tuple[int, int, int]:
        """Columns of a layer's q, k and v."""
        return self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim, self.num_kv_heads * self.v_dim

    @property
    def kv_scales(self) -> tuple[float, float]:
        """What K and V are divided by before they are stored. A latent row is both, and has one scale."""
        if not self.kv_scale:
            return 1.0, 1.0
        return self.kv_scale / 8, self.kv_scale / (8 if self.kv_lora_rank else 4)

    @property
    def is_speculative(self) -> bool:
        return self.spec_algorithm != ""

    @property
    def has_draft_model(self) -> bool:
        """Whether a draft model's own steps are driven."""
        return speculation.has_draft_model(self.spec_algorithm)

    @property
    def spec_shape(self) -> str:
        """What verified drafts are shaped like: chain, tree, ngram, dflash or dspark; "" without any."""
        return speculation.shape_of(self.spec_algorithm, self.spec_topk)

    @property
    def is_tree(self) -> bool:
        """Whether a verified draft may branch: then a mask says who sees whom."""
        return self.spec_shape in ("tree", "ngram")

    @property
    def is_ragged(self) -> bool:
        """Whether a verify may take another number of tokens of each request, packed in a row."""
        return self.spec_algorithm == "DSPARK"

    @property
    def may_mix(self) -> bool:
        """Whether a step may have prompts and decodes.

        SGLang mixes none where it drafts (0.5.19 on: with few algorithms), and its models know no order of operations for
        the halves of a mixed batch. Models with encoders it serves without chunks, and so without mixed steps.
        """
        return not self.is_speculative and self.wrapper != "tbo" and not self.encoder_decoder

    @property
    def spec_reserve(self) -> int:
        """KV slots that one speculative step may write per request."""
        return speculation.reserve(*self._speculation, self.page_size)

    @property
    def _speculation(self) -> tuple[str, int, int, int]:
        return self.spec_algorithm, self.spec_steps, self.spec_topk, self.spec_draft_tokens

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """The batch sizes that graphs are captured at, rising; none without graphs.

        Two-batch overlap splits batches: even sizes alone, the largest rounded up. Source: SGLang's
        get_batch_sizes_to_capture, which keeps multiples of 2 there, up to the most requests rounded up.
        """
        if not self.graph:
            return ()
        multiple = 2 if self.wrapper == "tbo" else 1
        most = -(-(self.graph_max or self.max_running_requests) // multiple) * multiple
        return (*(size for size in range(self.graph, most, self.graph) if size % multiple == 0), most)

    @property
    def pool_pages(self) -> int:
        """Pages that requests may own, page 0 not counted: of the smaller pool, for a page is taken from each."""
        return min(self.max_total_tokens, self.window_tokens or self.max_total_tokens) // self.page_size

    def known(self, length: int, extended: int | None = None) -> int:
        """Tokens, in whole pages, that the prefix cache knows of a request of ``length`` tokens.

        With a window pool the cache keeps no more than it knew after the last extend, ``extended``: later tokens may have
        lost their KV there.
        """
        if not self.radix_cache:
            return 0
        known = self.cache_keys(length) // self.page_size * self.page_size
        return known if extended is None or not self.window_tokens else min(known, extended)

    def cache_keys(self, length: int) -> int:
        """Keys that the prefix cache has of ``length`` tokens: EAGLE's are pairs of neighbours."""
        return length - 1 if self.has_draft_model else length

    def check(self) -> None:
        """Raise WorldError on the first rule broken."""
        fault = fault_of(self)
        if fault:
            raise WorldError(fault)

    def to_json(self) -> dict[str, Any]:
        """Every field of the first format, and later ones where they differ from their default."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        later = {field.name: field.default for field in fields(self)[_FIRST_FIELDS:]}
        return {name: value for name, value in values.items() if name not in later or value != later[name]}

    @classmethod
    def from_json(cls, data: object) -> World:
        """Build and check a World from parsed JSON; WorldError says what is wrong."""
        if not isinstance(data, dict):
            raise WorldError(f"world is {type(data).__name__}; expected an object")
        unknown = sorted(set(data) - {field.name for field in fields(cls)})
        if unknown:
            raise WorldError(f"world has the unknown field {unknown[0]!r}")
        world = cls(**data)
        world.check()
        return world


# How many fields the first format had: programs without the later ones keep the text and hash they had.
_FIRST_FIELDS = 22
