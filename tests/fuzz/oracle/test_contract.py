"""What an exception means, on exceptions raised in files made on the spot; those under a folder ``sglang`` are SGLang's."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from fuzz.finding import Verdict
from fuzz.oracle.contract import Judgement, assigns, judge
from stubs.fake_runner import FakeModelRunner
from stubs.kernels import fa3
from stubs.kernels.contract import require, require_absent
from stubs.packages.unwritten import UnwrittenModule, unwritten
from stubs.refusal import Refused

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


# --- missing attributes ------------------------------------------------------------------------------------------


def test_attribute_that_an_sglang_object_lacks_is_a_bug_placed_at_its_class(target: Any) -> None:
    judgement = judged(target.build_input, target.HybridAttnBackend())
    assert summary(judgement) == ("bug", "contract/AttributeError/HybridAttnBackend.max_context_len")
    assert judgement.title == "AttributeError: HybridAttnBackend has no 'max_context_len', read by build_input"
    del judgement.evidence["traceback"]
    assert judgement.evidence == {
        "object": "sglang.seam.HybridAttnBackend",
        "attribute": "max_context_len",
        "reader": "build_input",
    }


def test_attribute_that_a_stub_lacks_is_a_gap_naming_field_and_reader(target: Any) -> None:
    judgement = judged(target.build_input, bare_runner())
    assert summary(judgement) == ("stub_gap", "contract/missing_field/FakeModelRunner.max_context_len")
    assert judgement.title == "FakeModelRunner lacks the field 'max_context_len' that build_input reads"


def test_attribute_that_a_namespace_handed_in_for_a_worker_lacks_is_a_gap(target: Any) -> None:
    judgement = judged(target.build_input, SimpleNamespace(model_runner=None))
    assert summary(judgement) == ("stub_gap", "contract/missing_field/SimpleNamespace.max_context_len")


def test_field_that_the_harness_took_from_an_object_it_made_is_a_gap(target: Any) -> None:
    config = target.Config()
    del config.num_heads
    judgement = judged(config.width, supplied=(target.Config,))
    assert summary(judgement) == ("stub_gap", "contract/missing_field/Config.num_heads")


def test_the_same_field_is_a_bug_where_sglang_made_the_object(target: Any) -> None:
    config = target.Config()
    del config.num_heads
    assert summary(judged(config.width)) == ("bug", "contract/AttributeError/Config.num_heads")


def test_name_that_no_source_of_a_supplied_class_sets_is_a_bug(target: Any) -> None:
    judgement = judged(target.build_input, target.Config(), supplied=(target.Config,))
    assert summary(judgement) == ("bug", "contract/AttributeError/Config.max_context_len")


@pytest.mark.parametrize("reader", ["read_nested", "read_alias", "read_kept"])
def test_read_of_a_stubs_field_that_is_none_is_a_gap(target: Any, reader: str) -> None:
    runner = bare_runner(kv_index_translator=None)
    judgement = judged(getattr(target, reader, None) or getattr(target.Reader(runner), reader), runner)
    assert summary(judgement) == ("stub_gap", "contract/missing_field/FakeModelRunner.kv_index_translator.translate")


def test_read_of_none_that_sglang_made_is_a_bug_beside_a_stubs_none(target: Any) -> None:
    runner = bare_runner(kv_index_translator=None)
    judgement = judged(target.Reader(runner).read_own, runner)
    assert summary(judgement) == ("bug", "contract/AttributeError/Reader.read_own.translate")


def test_read_of_none_that_no_stub_holds_is_a_bug_placed_at_its_reader(target: Any) -> None:
    judgement = judged(target.read_stored, None)
    assert summary(judgement) == ("bug", "contract/AttributeError/read_stored.translate")


def test_attribute_error_without_a_name_is_placed_at_the_function_that_raised(target: Any) -> None:
    judgement = judged(target.raise_it, AttributeError("no such thing"))
    assert summary(judgement) == ("bug", "contract/AttributeError/raise_it")


def test_attribute_missing_in_the_harness_itself_is_infra() -> None:
    class Thing:
        pass

    judgement = judged(lambda: Thing().gone)  # type: ignore[attr-defined]
    assert judgement.verdict is Verdict.INFRA


def test_name_missing_in_a_module_of_sglang_is_a_bug(target: Any) -> None:
    assert summary(judged(target.read_module)) == ("bug", "contract/AttributeError/sglang.seam.gone")


def test_name_missing_in_another_package_is_infra(target: Any) -> None:
    judgement = judged(target.build_input, ModuleType("flashinfer"))
    assert summary(judgement) == ("infra", "harness/missing_package/flashinfer.max_context_len")


def test_operator_that_is_not_compiled_in_is_infra(target: Any) -> None:
    judgement = judged(target.build_input, torch.ops.sgl_kernel)
    assert summary(judgement) == ("infra", "harness/missing_package/torch.ops.sgl_kernel.max_context_len")


# --- calls that are refused --------------------------------------------------------------------------------------


def test_method_that_only_a_child_has_is_a_lost_delegation(target: Any) -> None:
    judgement = judged(target.fill_value, target.HybridAttnBackend())
    place = "AttentionBackend.get_cuda_graph_seq_len_fill_value"
    assert summary(judgement) == ("bug", f"contract/NotImplementedError/{place}")


def test_method_that_no_child_has_either_is_refused_in_sglangs_words(target: Any) -> None:
    judgement = judged(target.graph_state, target.HybridAttnBackend())
    assert summary(judgement) == ("unsupported", "contract/refused/AttentionBackend.init_cpu_graph_state")
    assert judgement.title == "graphs are not supported on a CPU"


@pytest.mark.parametrize(
    ("error", "verdict", "signature"),
    [
        (Refused("ServerArgs: no such backend"), "unsupported", "contract/refused/start-up"),
        (ValueError("page size 3 is not supported"), "unsupported", "contract/refused/raise_it"),
        (AssertionError("topk > 1 requires page_size == 1"), "unsupported", "contract/refused/raise_it"),
        (ValueError("lengths differ"), "bug", "contract/ValueError/raise_it"),
        (AssertionError(), "bug", "contract/AssertionError/raise_it"),
        (KeyError("not supported"), "bug", "contract/KeyError/raise_it"),
        (ImportError("No module", name="cutlass"), "infra", "harness/missing_package/cutlass"),
        (ImportError("circular", name="sglang.srt.layers"), "bug", "contract/ImportError/raise_it"),
        (OSError(28, "No space left on device"), "infra", "harness/no_room/raise_it"),
        (RuntimeError("Found no NVIDIA driver on your system"), "infra", "harness/no_gpu/raise_it"),
        (AssertionError("Torch not compiled with CUDA enabled"), "infra", "harness/no_gpu/raise_it"),
        (RuntimeError("expected 3, got 4"), "bug", "contract/RuntimeError/raise_it"),
    ],
)
def test_error_raised_in_sglang(target: Any, error: Exception, verdict: str, signature: str) -> None:
    assert summary(judged(target.raise_it, error)) == (verdict, signature)


# --- our stubs and stand-ins -------------------------------------------------------------------------------------


def test_stub_method_of_an_older_release_is_a_gap(target: Any) -> None:
    judgement = judged(target.call, bare_runner().decode_num_tokens_per_req, is_draft=True)
    assert summary(judgement) == ("stub_gap", "contract/stub_call/FakeModelRunner.decode_num_tokens_per_req")
    assert "got an unexpected keyword argument 'is_draft'" in judgement.title


def test_stand_in_for_a_closed_kernel_that_lacks_a_parameter_is_a_gap(target: Any) -> None:
    judgement = judged(target.call, fa3.get_scheduler_metadata, no_such_parameter=1)
    assert summary(judgement) == ("stub_gap", "contract/stub_call/get_scheduler_metadata")


def test_sglangs_own_function_of_the_same_name_is_a_bug(target: Any) -> None:
    def get_scheduler_metadata(batch_size: int) -> None:
        """Ours takes ``cu_seqlens_q``, so it is not ours that refuses it."""

    get_scheduler_metadata.__qualname__ = "get_scheduler_metadata"
    judgement = judged(target.call, get_scheduler_metadata, 1, cu_seqlens_q=None)
    assert summary(judgement) == ("bug", "contract/TypeError/get_scheduler_metadata")


def test_function_of_sglang_that_refuses_a_call_is_a_bug(target: Any) -> None:
    judgement = judged(target.call, target.build_input, 1, 2)
    assert summary(judgement) == ("bug", "contract/TypeError/build_input")
    assert judgement.evidence["reader"] == "call"


def test_type_error_that_is_no_refused_call_is_placed_where_it_was_raised(target: Any) -> None:
    judgement = judged(target.raise_it, TypeError("unsupported operand type(s) for +: 'int' and 'NoneType'"))
    assert summary(judgement) == ("bug", "contract/TypeError/raise_it")


def test_call_outside_a_closed_kernels_contract_is_a_bug_in_bounds(target: Any) -> None:
    judgement = judged(target.call, require, False, "flash_attn", "page_table", "has 2 rows for 3 requests", 1)
    assert summary(judgement) == ("bug", "bounds/contract_breach/flash_attn.page_table")
    assert judgement.title == "flash_attn: page_table of request 1: has 2 rows for 3 requests"


def test_feature_that_a_stand_in_lacks_is_a_gap(target: Any) -> None:
    judgement = judged(target.call, require_absent, "flash_attn", rotary_cos=1)
    assert (judgement.verdict.value, judgement.signature.kind) == ("stub_gap", "no_stand_in")
    assert judgement.title == "the stand-in for flash_attn has no rotary_cos; extend it in stubs/kernels"


def test_unwritten_name_of_a_stood_in_package_is_a_gap(target: Any) -> None:
    judgement = judged(target.call, unwritten("sgl_kernel", "rmsnorm"))
    assert (judgement.verdict.value, judgement.signature.kind) == ("stub_gap", "no_stand_in")
    assert judgement.title.startswith("seamripper has no stand-in for sgl_kernel.rmsnorm:")


def test_private_name_of_a_stood_in_package_is_a_gap(target: Any) -> None:
    judgement = judged(lambda: target.call(getattr, UnwrittenModule("vllm"), "_custom"))
    assert summary(judgement) == ("stub_gap", "contract/missing_field/vllm._custom")


def test_error_of_our_own_code_that_sglang_called_is_infra(target: Any) -> None:
    judgement = judged(target.call, fa3._side, "no number")
    assert (judgement.verdict.value, judgement.signature.oracle) == ("infra", "harness")
    assert judgement.signature.place == "stubs.kernels.fa3._side"


def test_kernel_that_triton_rejects_is_a_bug_although_our_interpreter_stands_between(target: Any) -> None:
    judgement = judged(target.call, rejecting("stubs.interpreter_replay", rejecting("triton.language.semantic")))
    assert summary(judgement) == ("bug", "contract/ValueError/call")


def test_the_same_error_of_our_interpreter_itself_is_infra(target: Any) -> None:
    judgement = judged(target.call, rejecting("stubs.interpreter_replay"))
    assert summary(judgement) == ("infra", "harness/ValueError/stubs.interpreter_replay.call")


def rejecting(module: str, below: Callable[[], Any] | None = None) -> Callable[[], Any]:
    """A function of the module of this name that calls ``below``, or rejects a kernel in Triton's words."""
    code = """
def call():
    if below:
        below()
    raise ValueError("Unsupported ptr type int64 in `tl.load`")
"""
    namespace: dict[str, Any] = {"__name__": module, "below": below}
    exec(code, namespace)  # noqa: S102 - so that the frame is of that module
    return namespace["call"]  # type: ignore[no-any-return]


# --- wrapped by Triton's interpreter -----------------------------------------------------------------------------


class InterpreterError(Exception):
    """Named as Triton's."""


def wrapped(function: Callable[[], Any], times: int) -> None:
    if times == 0:
        function()
        return
    try:
        wrapped(function, times - 1)
    except Exception as error:
        raise InterpreterError(repr(error)) from error


def test_error_wrapped_by_the_interpreter_is_judged_as_what_it_wraps(target: Any) -> None:
    judgement = judged(wrapped, lambda: target.build_input(target.HybridAttnBackend()), 2)
    assert summary(judgement) == ("bug", "contract/AttributeError/HybridAttnBackend.max_context_len")


def test_chain_of_wrappers_is_cut(target: Any) -> None:
    judgement = judged(wrapped, lambda: target.raise_it(KeyError("x")), 9)
    assert judgement.signature.kind == "InterpreterError"


# --- the source of a class ---------------------------------------------------------------------------------------


def test_assigns_sees_assignments_and_annotated_fields_and_nothing_else() -> None:
    assert assigns(FakeModelRunner, "page_size")
    assert assigns(FakeModelRunner, "kv_index_translator")  # with an annotation
    assert assigns(Judgement, "evidence")  # a dataclass field
    assert not assigns(FakeModelRunner, "spec_draft_tokens")  # read, never set
    assert not assigns(FakeModelRunner, "page")
