"""A release in miniature: a base class, two leaves in a registry, a wrapper that splits by mode, and a reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from fuzz.audit import AuditReport, Row

Release = Callable[..., Path]
BOTH = {"alpha": "def reset(self, a): pass", "beta": "def reset(self, a): pass"}

BASE = """
    class AttentionBackend:
        needs_lens: bool = True

        def forward(self, q, layer):
            return self.forward_decode(q, layer)

        def forward_decode(self, q, layer):
            raise NotImplementedError()

        def on_warmup(self):
            pass

        def fix_buffers(self, spec_info):
            raise NotImplementedError()
"""
LEAVES = """
    from sglang.srt.layers.attention.base import AttentionBackend

    TABLE = {{}}

    def register_attention_backend(name):
        def enter(function):
            TABLE[name] = function
            return function
        return enter

    class AlphaBackend(AttentionBackend):
        def __init__(self, runner):
            self.max_len = runner.context_len
        def forward_decode(self, q, layer):
            return q
        {alpha}

    class BetaBackend(AttentionBackend):
        def __init__(self, runner):
            self.max_len = runner.context_len
        def forward_decode(self, q, layer):
            return q
        {beta}

    @register_attention_backend("alpha")
    def make_alpha(runner):
        return AlphaBackend(runner)

    @register_attention_backend("beta")
    def make_beta(runner):
        return BetaBackend(runner)
"""
SPLIT = """
    from sglang.srt.layers.attention.base import AttentionBackend

    class SplitBackend(AttentionBackend):
        def __init__(self, model_runner, prefill_backend: AttentionBackend, decode_backend: AttentionBackend):
            self.prefill_backend = prefill_backend
            self.decode_backend = decode_backend
        def pick(self, mode):
            return self.decode_backend if mode == 1 else self.prefill_backend
        def forward_decode(self, q, layer):
            return self.decode_backend.forward_decode(q, layer)
        {split}
"""
RUNNER = """
    from sglang.srt.layers.attention.leaves import TABLE
    from sglang.srt.layers.attention.split import SplitBackend

    class Runner:
        def build(self, first, second):
            one, two = TABLE[first](self), TABLE[second](self)
            self.attn_backend = SplitBackend(self, prefill_backend=one, decode_backend=two)
"""
READER = """
    def read(runner, mode):
        {reader}
"""


def row(report: AuditReport, name: str, answer: str) -> Row:
    (found,) = [r for r in report.rows if (r.name, r.answer) == (name, answer)]
    return found


def indented(text: str, spaces: int) -> str:
    return dedent(text).strip().replace("\n", "\n" + " " * spaces)


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """Writes the miniature; `alpha`, `beta` and `split` are members to add, `reader` the body that reads the wrapper,
    `files` further files below sglang/srt."""

    def write(
        *,
        alpha: str = "",
        beta: str = "",
        split: str = "",
        reader: str = "",
        files: dict[str, str] | None = None,
    ) -> Path:
        root = tmp_path / "sglang" / "srt"
        texts = {
            "layers/attention/base.py": dedent(BASE),
            "layers/attention/leaves.py": dedent(LEAVES).format(alpha=indented(alpha, 4), beta=indented(beta, 4)),
            "layers/attention/split.py": dedent(SPLIT).format(split=indented(split, 4)),
            "model_executor/runner.py": dedent(RUNNER),
            "model_executor/reader.py": dedent(READER).format(
                reader=indented(reader or "return runner.attn_backend", 4)
            ),
        }
        texts |= {path: dedent(text) for path, text in (files or {}).items()}
        for path, text in texts.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        return tmp_path

    return write
