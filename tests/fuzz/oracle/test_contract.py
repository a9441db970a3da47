"""What an exception means, on those raised in files made on the spot; what is under a folder ``sglang`` is SGLang's."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from fuzz.finding import Verdict
from fuzz.oracle.contract import Judgement, assigns
from stubs.fake_runner import FakeModelRunner
from stubs.refusal import Refused
from tests.fuzz.oracle.conftest import bare_runner, judged, summary

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
