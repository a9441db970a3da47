"""Runs programs as ``fuzz.execute`` does, with a stub stunted or a fault planted in SGLang: the seed says which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stubs import imports

imports.install()  # what a worker does for its usual executor, before that one is imported

from fuzz import execute as plain
from fuzz.program import Program
from fuzz.trace import Trace
from stubs import fake_server, sglang
from stubs.fake_runner import FakeModelRunner
from tests.fuzz.planted import PLANTS

prepare, available_pairs, speculative_modes = plain.prepare, plain.available_pairs, plain.speculative_modes


def execute(program: Program) -> Trace:
    owner, name, make = [*STUNTS.values(), *PLANTS.values()][program.seed]
    if isinstance(owner, str):  # of SGLang, which is not imported before it must be
        module, _, owner = owner.rpartition(".")
        owner = getattr(sglang.load(f"{sglang.ATTENTION}.{module}"), owner)
    with _replaced(owner, name, make):
        return plain.execute(program)


@contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """``owner.name`` is ``make`` of what it was, for a while; where that is None, it is missing."""
    before = getattr(owner, name)
    after = make(before)
    if after is None:
        delattr(owner, name)
    else:
        setattr(owner, name, after)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _config_changed(change: Callable[[Any], None]) -> Callable[[Any], Any]:
    """A maker of configs that changes each one after SGLang has built it."""

    def wrap(build: Callable[..., Any]) -> Callable[..., Any]:
        def built(*given: Any, **named: Any) -> Any:
            config = build(*given, **named)
            change(config)
            return config

        return built

    return wrap


def _without_head_count(config: Any) -> None:
    del config.num_attention_heads


def _context_len_renamed(config: Any) -> None:
    config.context_length = vars(config).pop("context_len")


def _without_field(name: str) -> Callable[[Any], Any]:
    """A FakeModelRunner constructor that leaves one field out."""

    def wrap(init: Callable[..., None]) -> Callable[..., None]:
        def shorter(self: Any, *given: Any) -> None:
            init(self, *given)
            delattr(self, name)

        return shorter

    return wrap


def _assembled(change: Callable[[FakeModelRunner], None]) -> Callable[[Any], Any]:
    """A maker of runners' last step that changes each one after it is whole."""

    def wrap(assemble: Callable[..., None]) -> Callable[..., None]:
        def assembled(runner: FakeModelRunner, layers: int) -> None:
            assemble(runner, layers)
            change(runner)

        return assembled

    return wrap


def _without_translator(runner: FakeModelRunner) -> None:
    del runner.kv_index_translator


def _no_translator(runner: FakeModelRunner) -> None:
    runner.kv_index_translator = None


def _narrow(_: Any) -> Any:
    """A method as an older release might have called it."""

    def decode_num_tokens_per_req(self: FakeModelRunner, num_draft_tokens: int) -> int:
        return num_draft_tokens

    decode_num_tokens_per_req.__module__ = FakeModelRunner.__module__
    decode_num_tokens_per_req.__qualname__ = "FakeModelRunner.decode_num_tokens_per_req"
    return decode_num_tokens_per_req


def _whole(value: Any) -> Any:
    return value


# What is stunted -> (owner, name, what its value becomes); its index is the seed of the program to run with it; PLANTS follow.
STUNTS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "nothing": (fake_server, "_assemble", _whole),
    "config without num_attention_heads": (sglang, "model_config", _config_changed(_without_head_count)),
    "config with context_len renamed": (sglang, "model_config", _config_changed(_context_len_renamed)),
    "runner without sliding_window_size": (FakeModelRunner, "__init__", _without_field("sliding_window_size")),
    "runner without decode_num_tokens_per_req": (FakeModelRunner, "decode_num_tokens_per_req", lambda _: None),
    "runner with a narrow decode_num_tokens_per_req": (FakeModelRunner, "decode_num_tokens_per_req", _narrow),
    "runner without kv_index_translator": (fake_server, "_assemble", _assembled(_without_translator)),
    "runner whose kv_index_translator is None": (fake_server, "_assemble", _assembled(_no_translator)),
}
