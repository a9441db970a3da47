"""A module of SGLang made on the spot, whose functions raise, and what is judged of what they raise."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fuzz.oracle.contract import Judgement, judge
from stubs.fake_runner import FakeModelRunner

TARGET = """
import importlib

class AttentionBackend:
    def get_cuda_graph_seq_len_fill_value(self):
        raise NotImplementedError()

    def init_cpu_graph_state(self):
        raise NotImplementedError("graphs are not supported on a CPU")

class Child(AttentionBackend):
    def get_cuda_graph_seq_len_fill_value(self):
        return 1

class HybridAttnBackend(AttentionBackend):
    def __init__(self):
        self.prefill_backend = self.decode_backend = Child()

class HybridLinearAttnBackend(AttentionBackend):
    def __init__(self, child):
        self.full_attn_backend = child
        self.max_context_len = getattr(child, "max_context_len", None)

def row_width(runner):
    return 2 * runner.backend.max_context_len

class Config:
    def __init__(self):
        self.num_heads = 2

    def width(self):
        return self.num_heads

def build_input(backend):
    return backend.max_context_len

def read_nested(runner):
    return runner.kv_index_translator.translate

def read_alias(runner):
    translator = runner.kv_index_translator
    return translator.translate

class Reader:
    def __init__(self, runner):
        self.kv_index_translator = runner.kv_index_translator
        self.own = None

    def read_kept(self, runner):
        return self.kv_index_translator.translate

    def read_own(self, runner):
        return self.own.translate

def read_stored(translator):
    return translator.translate

def fill_value(backend):
    return backend.get_cuda_graph_seq_len_fill_value()

def graph_state(backend):
    return backend.init_cpu_graph_state()

def call(function, *given, **named):
    return function(*given, **named)

def raise_it(error):
    raise error

def assert_fits(used, capacity):
    assert used <= capacity, f"used {used} > capacity {capacity}"

def plan_draft():
    assert_fits(25, 24)

def plan_verify():
    assert_fits(9, 8)

def load(name):
    return importlib.import_module(name)

def read_module():
    return importlib.import_module(__name__).gone
"""


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Any]:
    """The module ``sglang.seam`` in a folder of its own, loaded under its own name and file."""
    package = tmp_path / "checkout" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "seam.py").write_text(TARGET)
    spec = importlib.util.spec_from_file_location("sglang.seam", package / "seam.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sglang.seam"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["sglang.seam"]


def judged(function: Callable[..., Any], *given: Any, supplied: tuple[type, ...] = (), **named: Any) -> Judgement:
    try:
        function(*given, **named)
    except Exception as error:  # noqa: BLE001 - whatever is raised is what is judged
        return judge(error, supplied)
    raise AssertionError("nothing was raised")


def summary(judgement: Judgement) -> tuple[str, str]:
    return judgement.verdict.value, str(judgement.signature)


def bare_runner(**fields: Any) -> FakeModelRunner:
    """A FakeModelRunner that has these fields alone."""
    runner = object.__new__(FakeModelRunner)
    vars(runner).update(fields)
    return runner
