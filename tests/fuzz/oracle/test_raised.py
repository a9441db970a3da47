"""Whose code an exception comes from: SGLang's, a stub's, a stand-in's, our interpreter's, or Triton's behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stubs.kernels import fa3
from stubs.kernels.contract import require, require_absent
from stubs.packages.unwritten import UnwrittenModule, unwritten
from tests.fuzz.oracle.conftest import bare_runner, judged, summary


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


def test_rules_of_one_argument_are_told_apart(target: Any) -> None:
    judgement = judged(target.call, require, False, "flash_attn", "page_table", "page id 9", 1, rule="id")
    assert summary(judgement) == ("bug", "bounds/contract_breach/flash_attn.page_table:id")
    assert judgement.signature.slug.startswith("bounds-contract_breach-flash_attn_page_table_id-")
    assert str(judgement.signature.without_rule) == "bounds/contract_breach/flash_attn.page_table"


@pytest.mark.parametrize("caller", ["plan_draft", "plan_verify"])
def test_what_a_mere_check_raises_is_its_callers(target: Any, caller: str) -> None:
    judgement = judged(getattr(target, caller))
    assert summary(judgement) == ("bug", f"contract/AssertionError/{caller}")
    assert judgement.evidence["reader"] == "assert_fits"


def test_a_check_that_nothing_of_sglang_calls_is_its_own_place(target: Any) -> None:
    assert summary(judged(target.assert_fits, 2, 1)) == ("bug", "contract/AssertionError/assert_fits")


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
