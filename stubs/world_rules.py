"""What a World may be: each field's type, values and bounds, and which fields go together; no SGLang, no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from stubs import speculation

if TYPE_CHECKING:
    from stubs.world import World

DTYPES = ("float32", "float16", "bfloat16")
KV_DTYPES = ("auto", "fp8_e4m3", "fp8_e5m2")
LAYOUTS = ("contiguous", "shuffled", "interleaved", "descending")
RUNNERS = ("fake", "real")
DEVICES = ("cpu", "cuda")
WRAPPERS = ("", "tbo", "linear")
SPEC_MODES = ("prefill", "decode")

_MEMBERS = (
    ("runner", RUNNERS),
    ("device", DEVICES),
    ("dtype", DTYPES),
    ("kv_dtype", KV_DTYPES),
    ("layout", LAYOUTS),
    ("spec_algorithm", speculation.ALGORITHMS),
    ("spec_mode", SPEC_MODES),
    ("wrapper", WRAPPERS),
)

# Upper bounds keep a malformed file from asking for gigabytes; they lie far above what the generator draws.
_BOUNDS = (
    ("num_heads", 1, 128),
    ("num_kv_heads", 1, 128),
    ("head_dim", 8, 576),
    ("num_layers", 1, 8),
    ("page_size", 1, 128),
    ("context_len", 8, 65536),
    ("max_running_requests", 1, 256),
    ("max_total_tokens", 8, 1 << 20),
    ("sliding_window", 0, 65536),
    ("logit_cap", 0, 1000),
    ("overlap", 0, 1),
    ("spec_steps", 0, 16),
    ("spec_topk", 0, 16),
    ("spec_draft_tokens", 0, 64),
    ("query_scalar", 0, 65536),
    ("alternate_layers", 0, 1),
    ("xai_temperature_len", 0, 65536),
    ("save_kv_cache", 0, 1),
    ("deterministic", 0, 1),
    ("logit_shift", -400, 400),
    ("window_tokens", 0, 1 << 20),
    ("radix_cache", 0, 1),
    ("sinks", 0, 1),
    ("v_head_dim", 0, 512),
    ("kv_scale", 0, 64),
    ("graph", 0, 256),
    ("kv_lora_rank", 0, 512),
    ("prefix_chunk", 0, 1 << 17),
    ("graph_max", 0, 256),
    ("linear_before", 0, 8),
    ("prefill_graph", 0, 4096),
    ("attention_chunk_size", 0, 65536),
    ("encoder_decoder", 0, 1),
)

# What models with latent attention do not have, or what was not tried with them yet.
NOT_LATENT = (
    "sliding_window",
    "logit_cap",
    "query_scalar",
    "alternate_layers",
    "xai_temperature_len",
    "save_kv_cache",
    "logit_shift",
    "window_tokens",
    "sinks",
    "v_head_dim",
    "wrapper",
    "attention_chunk_size",
    "encoder_decoder",
)


# What a model whose linear layers come first does not have: SGLang makes its pool of KV without them.
NOT_LINEAR = ("window_tokens", "sinks", "v_head_dim")

# What no model with local attention has beside it.
NOT_CHUNKED = ("sliding_window", "logit_cap", "xai_temperature_len", "sinks", "v_head_dim", "linear_before")

# What no model with an encoder has beside it, what SGLang refuses with one, or what was not tried with one yet.
NOT_ENCODED = (
    "sliding_window",
    "logit_cap",
    "alternate_layers",
    "xai_temperature_len",
    "sinks",
    "v_head_dim",
    "attention_chunk_size",
    "wrapper",
    "prefill_graph",
    "kv_dtype",
    "spec_algorithm",
)


def plans_prefill(world: World) -> bool:
    """Whether the prefill half is known to plan whole prefill steps in graphs, in the releases that capture them.

    Source: what SGLang 0.5.15 to 0.5.23 do in their init_forward_metadata_out_graph with a plain extend: others raise
    "Invalid forward mode", flashinfer's latent attention among them.
    """
    return world.prefill == "fa3" or (world.prefill == "flashinfer" and not world.kv_lora_rank)


def fault_of(world: World) -> str:
    """The first rule that ``world`` breaks, as the field, its value and what was expected; "" where it keeps them all."""
    return next(_faults(world), "")


def _faults(world: World) -> Iterator[str]:
    """Every broken rule. A later one may rely on those before it, so that only the first is sure to be sound."""
    yield from _faults_of_fields(world)
    yield from _faults_of_sizes(world)
    yield from _faults_of_latent(world)
    yield from _faults_of_linear(world)
    yield from _faults_of_chunk(world)
    yield from _faults_of_encoder(world)
    yield from _faults_of_window_pool(world)
    yield from _faults_of_graph(world)
    fault = speculation.fault_of(world.spec_algorithm, world.spec_steps, world.spec_topk, world.spec_draft_tokens)
    if fault:
        yield fault


def _faults_of_fields(world: World) -> Iterator[str]:
    """Each field by itself."""
    for field in fields(world):
        value = getattr(world, field.name)
        wanted = int if field.type == "int" else str
        if type(value) is not wanted:
            yield f"world.{field.name} is {value!r}; expected {wanted.__name__}"
    for name, allowed in _MEMBERS:
        value = getattr(world, name)
        if value not in allowed:
            yield f"world.{name} is {value!r}; expected one of {', '.join(repr(a) for a in allowed)}"
    for name, low, high in _BOUNDS:
        value = getattr(world, name)
        if not low <= value <= high:
            yield f"world.{name} is {value}; expected {low}..{high}"


def _faults_of_sizes(world: World) -> Iterator[str]:
    if world.num_heads % world.num_kv_heads:
        yield f"world.num_heads {world.num_heads} is no multiple of num_kv_heads {world.num_kv_heads}"
    if world.max_total_tokens % world.page_size:
        yield f"world.max_total_tokens {world.max_total_tokens} is no multiple of page {world.page_size}"
    if world.xai_temperature_len == 1:
        yield "world.xai_temperature_len is 1, whose logarithm is 0; expected 0 (none) or 2 and more"
    if world.kv_scale and world.kv_dtype == "auto":
        yield f"world.kv_scale is {world.kv_scale} with kv_dtype 'auto'; expected 0: only fp8 is scaled"
    if world.wrapper == "tbo" and not world.save_kv_cache:
        yield "world.save_kv_cache is 0 with wrapper 'tbo'; expected 1: not tried with it yet"


def _faults_of_latent(world: World) -> Iterator[str]:
    rank = world.kv_lora_rank
    if not rank:
        if world.prefix_chunk:
            yield f"world.prefix_chunk is {world.prefix_chunk} without kv_lora_rank; expected 0"
        return
    if world.num_kv_heads != 1:
        yield f"world.num_kv_heads is {world.num_kv_heads} with a kv_lora_rank; expected 1: all share a row"
    if rank >= world.head_dim:
        yield (
            f"world.kv_lora_rank is {rank} with head_dim {world.head_dim}; expected fewer: head_dim is the latent and "
            "the rotary key"
        )
    plain = {field.name: field.default for field in fields(world)}
    for name in NOT_LATENT:
        value = getattr(world, name)
        if value != plain[name]:
            yield (
                f"world.{name} is {value!r} with kv_lora_rank {rank}; expected {plain[name]!r}: latent attention runs "
                "without it alone yet"
            )


def _faults_of_linear(world: World) -> Iterator[str]:
    if not world.linear_before:
        return
    if world.wrapper != "linear":
        yield f"world.linear_before is {world.linear_before} with wrapper {world.wrapper!r}; expected 0"
    for name in NOT_LINEAR:
        value = getattr(world, name)
        if value:
            yield f"world.{name} is {value} with linear_before {world.linear_before}; expected 0: no such model has both"


def _faults_of_chunk(world: World) -> Iterator[str]:
    chunk = world.attention_chunk_size
    if not chunk:
        return
    if chunk % world.page_size:
        yield f"world.attention_chunk_size {chunk} is no multiple of page {world.page_size}"
    for name in NOT_CHUNKED:
        value = getattr(world, name)
        if value:
            yield f"world.{name} is {value} with attention_chunk_size {chunk}; expected 0: no such model has both"
    if world.wrapper == "linear":
        yield f"world.wrapper is 'linear' with attention_chunk_size {chunk}; expected '' or 'tbo': no such model has both"


def _faults_of_encoder(world: World) -> Iterator[str]:
    if not world.encoder_decoder:
        return
    if world.num_layers < 2:
        yield f"world.num_layers is {world.num_layers} with encoder_decoder 1; expected 2 or more: every second is the encoder's"
    if world.page_size != 1:
        yield (
            f"world.page_size is {world.page_size} with encoder_decoder 1; expected 1: SGLang takes a decode's last page "
            "from the length without the encoder's tokens"
        )
    if not world.save_kv_cache:
        yield "world.save_kv_cache is 0 with encoder_decoder 1; expected 1: such a model leaves its KV to its layers"
    plain = {field.name: field.default for field in fields(world)}
    for name in NOT_ENCODED:
        value = getattr(world, name)
        if value != plain[name]:
            yield f"world.{name} is {value!r} with encoder_decoder 1; expected {plain[name]!r}"


def _faults_of_window_pool(world: World) -> Iterator[str]:
    if not world.window_tokens:
        return
    window, alternate, layers = world.local_span, world.alternate_layers, world.num_layers
    if not (window and alternate and layers > 1):
        yield (
            f"world.window_tokens is {world.window_tokens} with {window=} {alternate=} {layers=}; "
            "expected a window or chunks, on every second of two layers or more"
        )
    if world.window_tokens % world.page_size:
        yield f"world.window_tokens {world.window_tokens} is no multiple of page {world.page_size}"


def _faults_of_graph(world: World) -> Iterator[str]:
    if world.prefill_graph and world.wrapper:
        yield f"world.prefill_graph is {world.prefill_graph} with wrapper {world.wrapper!r}; expected 0: not tried with it yet"
    if world.prefill_graph and not world.save_kv_cache:
        yield f"world.prefill_graph is {world.prefill_graph} with save_kv_cache 0; expected 0: a graph writes its own KV"
    if world.graph_max and not world.graph:
        yield f"world.graph_max is {world.graph_max} without graphs; expected 0"
    if world.graph_max > world.max_running_requests:
        yield f"world.graph_max {world.graph_max} is above max_running_requests {world.max_running_requests}"
