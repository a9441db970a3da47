"""The fake runner: what it lacks is said of it and not of SGLang, and it builds what SGLang's own runner would."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.finding import Verdict
from fuzz.program import Program, parse
from tests.conftest import RealWorker
from tests.fuzz.golden import DATA, SECONDS
from tests.fuzz.test_execute import STUNTED

pytestmark = pytest.mark.release

# In the order of stunted_executor.STUNTS, which cannot be imported here: it imports what a worker alone has.
GAPS = {
    "config without num_attention_heads": (
        "contract/missing_field/ModelConfig.num_attention_heads",
        (
            "the ModelConfig handed in lacks the field 'num_attention_heads' that "
            "ModelConfig.get_max_num_attention_heads reads"
        ),
    ),
    "config with context_len renamed": (
        "contract/missing_field/ModelConfig.context_len",
        "the ModelConfig handed in lacks the field 'context_len' that FlashAttentionBackend.__init__ reads",
    ),
    "runner without sliding_window_size": (
        "contract/missing_field/FakeModelRunner.sliding_window_size",
        "FakeModelRunner lacks the field 'sliding_window_size' that FlashAttentionBackend.__init__ reads",
    ),
    "runner without decode_num_tokens_per_req": (
        "contract/missing_field/FakeModelRunner.decode_num_tokens_per_req",
        "FakeModelRunner lacks the field 'decode_num_tokens_per_req' that TritonAttnBackend.__init__ reads",
    ),
    "runner with a narrow decode_num_tokens_per_req": (
        "contract/stub_call/FakeModelRunner.decode_num_tokens_per_req",
        (
            "FakeModelRunner.decode_num_tokens_per_req does not take this release's call: "
            "FakeModelRunner.decode_num_tokens_per_req() missing 1 required positional argument: 'num_draft_tokens'"
        ),
    ),
    "runner without kv_index_translator": (
        "contract/missing_field/FakeModelRunner.kv_index_translator",
        "FakeModelRunner lacks the field 'kv_index_translator' that FlashAttentionBackend.__init__ reads",
    ),
    "runner whose kv_index_translator is None": (
        "contract/missing_field/FakeModelRunner.kv_index_translator.own_plan",
        "FakeModelRunner.kv_index_translator is None in the stub, and ForwardBatch.init_new reads 'own_plan' of it",
    ),
}


def stunted(index: int) -> Program:
    program = parse((DATA / "verify_chain.jsonl").read_text())
    return replace(program, seed=index, world=replace(program.world, decode="fa3"))


def test_whole_stubs_give_no_gap(real_worker: RealWorker) -> None:
    trace = real_worker("0.5.23", STUNTED).run(stunted(0), SECONDS)
    assert (trace.verdict, len(trace.steps)) == (Verdict.OK, 5)


@pytest.mark.parametrize("stunt", GAPS)
def test_stub_behind_the_release_is_a_gap_naming_field_and_reader(real_worker: RealWorker, stunt: str) -> None:
    index = 1 + list(GAPS).index(stunt)
    trace = real_worker("0.5.23", STUNTED).run(stunted(index), SECONDS)
    (finding,) = trace.findings
    assert trace.verdict is Verdict.STUB_GAP
    assert (str(finding.signature), finding.title) == GAPS[stunt]
