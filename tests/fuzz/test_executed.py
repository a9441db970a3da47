"""Which lines of a real release a program is noted to have run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.program import parse
from tests.conftest import RealWorker

pytestmark = pytest.mark.release

DATA = Path(__file__).parent.parent / "data"
BACKENDS = "sglang/srt/layers/attention"
KERNELS = "sglang/kernels/ops/attention"


def test_lines_of_backends_and_of_interpreted_kernels_are_noted(
    real_worker: RealWorker, target_folder: Callable[[str], Path]
) -> None:
    worker = real_worker("0.5.23", "fuzz.executed")
    worker.run(parse((DATA / "extend_decode.jsonl").read_text()), 120)
    (note,) = worker.options.out.glob("executed-*.json")
    lines = json.loads(note.read_text())

    def ran(file: str, text: str) -> bool:
        """Whether a line of ``file`` that reads so was noted."""
        path = target_folder("0.5.23").resolve() / file
        numbers = {n for n, line in enumerate(path.read_text().splitlines(), 1) if line.strip() == text}
        assert numbers, f"{path} has no such line"
        return bool(numbers & set(lines[str(path)]))

    hybrid = f"{BACKENDS}/hybrid_attn_backend.py"
    assert ran(hybrid, "if forward_mode.is_decode_or_idle():")
    assert not ran(hybrid, "return self.prefill_backend.dllm_attention")
    kernels = f"{KERNELS}/kv_indices.py"
    assert ran(kernels, "kv_indices_offset = tl.load(kv_indptr + pid)")
    assert not ran(kernels, "num_blk = tl.num_programs(axis=1)")
