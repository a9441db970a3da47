"""The canary: a fault planted in a backend goes from generation to a saved script, and is gone where it is not planted."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import CampaignOptions, CampaignResult, run_campaign
from fuzz.process import Ready
from fuzz.record import Record
from fuzz.revisions import Rig, replay
from fuzz.worker import EXECUTOR

pytestmark = pytest.mark.release

TARGET = "pypi:0.5.23"
SEED, PROGRAMS = 4, 3  # plain worlds, in which SGLang itself has no fault on this pair
CANARY = "tests.fuzz.canary_executor"
SIGNATURE = "numeric/wrong_output/TorchNativeAttnBackend.forward_decode"
GOLDEN = Path(__file__).parent.parent / "data" / "canary.py"
# Four tokens are the fewest that the planted fault shows on: three in the prompt and the decoded one.
SHRUNK = """\
{"seamripper":1,"seed":0,"world":{"context_len":64,"decode":"torch_native","device":"cpu","dtype":"float32",\
"head_dim":16,"layout":"contiguous","logit_cap":0,"max_running_requests":4,"max_total_tokens":512,"num_heads":2,\
"num_kv_heads":1,"num_layers":1,"overlap":1,"page_size":1,"prefill":"triton","runner":"fake","sliding_window":0,\
"spec_algorithm":"","spec_draft_tokens":0,"spec_mode":"prefill","spec_steps":0,"spec_topk":0}}
{"op":"extend","rows":[{"request":0,"tokens":3}]}
{"op":"decode","requests":[0]}
"""


@dataclass
class Log:
    """A Progress that remembers the records."""

    records: list[Record] = field(default_factory=list)

    def started(self, options: CampaignOptions, ready: Ready, pairs: tuple[str, ...]) -> None:
        pass

    def program_done(self, record: Record) -> None:
        self.records.append(record)

    def finding(self, finding: dict[str, Any]) -> None:
        pass

    def phase(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def finished(self, result: CampaignResult) -> None:
        pass


@pytest.fixture(scope="module")
def campaign(target_folder: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[CampaignResult, list[Record]]:
    """Three programs: two verify, the last decodes."""
    target_folder(TARGET.partition(":")[2])
    folder = tmp_path_factory.mktemp("canary")
    log = Log()
    options = CampaignOptions(
        target=TARGET,
        repros=folder / "repros",
        out=folder / "out",
        python=sys.executable,
        pairs=("triton:torch_native",),
        seed=SEED,
        programs=PROGRAMS,
        executor=CANARY,
    )
    return run_campaign(options, log), log.records


def test_the_planted_fault_and_no_other_is_found(campaign: tuple[CampaignResult, list[Record]]) -> None:
    result, records = campaign
    assert [(record.verdict, record.signature) for record in records] == [("ok", "")] * 2 + [("bug", SIGNATURE)]
    (finding,) = result.findings
    assert (finding["signature"], finding["reliability"], finding["mode"]) == (SIGNATURE, [10, 10], "decode")
    assert result.exit_code == 1


def test_the_smallest_program_is_left(campaign: tuple[CampaignResult, list[Record]]) -> None:
    assert campaign[0].findings[0]["program"] == SHRUNK


def test_the_script_is_the_golden_one(campaign: tuple[CampaignResult, list[Record]]) -> None:
    (script,) = campaign[0].scripts
    assert script.name == "numeric-wrong_output-TorchNativeAttnBackend_forward_decode-46c21611.py"
    assert script.read_text() == GOLDEN.read_text()


@pytest.mark.parametrize(
    ("executor", "state", "shown", "exit_code"), [(CANARY, "bug", 2, 1), (EXECUTOR, "clean", 0, 0)]
)
def test_the_script_shows_the_fault_only_where_it_is_planted(
    target_folder: Any, executor: str, state: str, shown: int, exit_code: int
) -> None:
    target_folder(TARGET.partition(":")[2])
    result = replay(GOLDEN, TARGET, 2, Rig(executor=executor))
    assert (result.cell.state, result.cell.k, result.exit_code) == (state, shown, exit_code)
