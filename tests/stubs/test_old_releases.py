"""Older releases start, plan and run over the stand-ins, in the ways that are theirs alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuzz.finding import Verdict
from fuzz.process import WorkerProcess
from fuzz.program import parse

WORLD = (
    '{"seamripper":1,"seed":7,"world":{"context_len":48,"decode":"fa3","device":"cpu","dtype":"float32","head_dim":16,'
    '"layout":"contiguous","logit_cap":0,"max_running_requests":3,"max_total_tokens":256,"num_heads":2,'
    '"num_kv_heads":1,"num_layers":1,"overlap":1,"page_size":1,"prefill":"triton","runner":"fake","sliding_window":0,'
)
PLAIN = '"spec_algorithm":"","spec_draft_tokens":0,"spec_mode":"prefill","spec_steps":0,"spec_topk":0}}'
TREE = '"spec_algorithm":"EAGLE","spec_draft_tokens":4,"spec_mode":"prefill","spec_steps":2,"spec_topk":2}}'
EXTEND = '{"op":"extend","rows":[{"request":0,"tokens":5}]}'
STEPS = f'{EXTEND}\n{{"op":"decode","requests":[0]}}\n{{"op":"finish","requests":[0]}}\n'
VERIFY = f'{EXTEND}\n{{"accepts":[2],"draft_extend":1,"op":"verify","requests":[0]}}\n'


@pytest.mark.release
@pytest.mark.parametrize(
    "version", ["0.5.5", "0.5.8"]
)  # before and after rows were counted, imports were circular, ...
@pytest.mark.parametrize("text", [f"{WORLD}{PLAIN}\n{STEPS}", f"{WORLD}{TREE}\n{VERIFY}"], ids=["plain", "tree"])
def test_a_program_runs_clean(real_worker: Callable[[str], WorkerProcess], version: str, text: str) -> None:
    trace = real_worker(version).run(parse(text), 300)
    assert [finding.title for finding in trace.findings] == []
    assert trace.verdict is Verdict.OK
    assert len(trace.steps) >= 3


PADDED = '{"dead":1,"op":"decode","requests":[0]}\n{"dead":2,"op":"idle"}\n'


@pytest.mark.release
def test_a_rank_is_padded_by_a_release_that_asks_the_runner_for_linear_layers(
    real_worker: Callable[[str], WorkerProcess],
) -> None:
    trace = real_worker("0.5.14").run(parse(f"{WORLD}{PLAIN}\n{EXTEND}\n{PADDED}"), 300)
    assert [step.mode for step in trace.steps] == ["extend", "decode_padded", "idle_padded"]
    assert trace.findings == ()


@pytest.mark.release
def test_a_rank_of_a_plain_model_is_not_run_as_an_extend_by_it(real_worker: Callable[[str], WorkerProcess]) -> None:
    beside = '{"beside_extend":1,"op":"decode","requests":[0]}\n'
    (finding,) = real_worker("0.5.14").run(parse(f"{WORLD}{PLAIN}\n{EXTEND}\n{beside}"), 300).findings
    assert (finding.verdict, finding.mode) == (Verdict.UNSUPPORTED, "decode")
