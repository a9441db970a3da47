"""Models with local attention, which Llama 4 alone is in SGLang: their config, and the backends that may serve them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from functools import cache
from typing import Any

from stubs.layer import layer_of
from stubs.refusal import Refused
from stubs.sglang_modules import present
from stubs.world import World

ARCHITECTURE = "Llama4ForConditionalGeneration"
# Where SGLang checks a model's arguments: in a module of its own (from 0.5.17 on), or in ServerArgs.
CHECKS = ("sglang.srt.arg_groups.model_hook", "sglang.srt.server_args")


def config_fields(world: World) -> dict[str, Any]:
    """What the config.json says of such layers: all are chunked for SGLang but every fourth, as the layers say themselves."""
    return {"attention_chunk_size": world.attention_chunk_size}


def refuse_backends(world: World) -> None:
    """Raise Refused where a half of the pair is none of those that SGLang's check of such a model names.

    SGLang makes that check on a GPU alone, and of the one name that stands for both halves: here it is made of each.
    """
    if not world.attention_chunk_size:
        return
    names, reason = _required()
    for backend in (world.prefill, world.decode):
        if backend not in names:
            raise Refused(f"ServerArgs: {reason} but got {backend}")


def make_local(world: World, config: Any) -> None:
    """Let ``config``, the ModelConfig of a Llama, say of its layers what that of a Llama 4 says."""
    if world.attention_chunk_size:
        config.is_local_attention_model, config.attention_chunk_size = True, world.attention_chunk_size


def mark(world: World, layers: Sequence[Any]) -> None:
    """Make those of a model's RadixAttention ``layers`` chunked that are so in ``world``, as Llama 4's model makes them."""
    for index, layer in enumerate(layers):
        layer.use_irope = bool(layer_of(world, index).chunk)


@cache
def _required() -> tuple[frozenset[str], str]:
    """The backends that this release asserts for Llama 4, and its words; none where it has no such check."""
    for module in present(*CHECKS):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Assert) and node.msg is not None and "Llama4" in ast.unparse(node.msg):
                words = " ".join(_texts(node.msg)).removesuffix(" but got ")
                return frozenset(_texts(node.test)), words
    return frozenset(), "this release names no attention backend for Llama 4"


def _texts(node: ast.AST) -> list[str]:
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
