"""What the audit says of a release in miniature, rule by rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzz.audit import AuditReport, audit
from tests.fuzz.audit.conftest import BOTH, row


def names(report: AuditReport) -> set[tuple[str, str]]:
    return {(r.name, r.answer) for r in report.rows}


def test_a_wrapper_is_told_by_the_backends_it_is_handed(release):
    assert [w.name for w in audit(release()).wrappers] == ["SplitBackend"]


def test_a_name_that_both_children_have_and_the_wrapper_lacks_is_missing(release):
    found = row(audit(release(reader="return runner.attn_backend.max_len")), "max_len", "missing")
    assert found.children == (("AlphaBackend", "runner.context_len"), ("BetaBackend", "runner.context_len"))
    assert [(r.place, r.access) for r in found.readers] == [("srt/model_executor/reader.py:read", "plain")]
    assert (found.harm, found.gap) == ("crash", True)


def test_a_name_that_the_wrapper_sets_is_no_row(release):
    folder = release(
        split="def later(self):\n    self.max_len = 1",
        reader="return runner.attn_backend.max_len",
    )
    assert audit(folder).rows == ()


def test_a_name_that_no_child_answers_is_no_row(release):
    assert audit(release(reader="return runner.attn_backend.nothing")).rows == ()


def test_a_bare_annotation_answers_nothing(release):
    folder = release(split="max_len: int", reader="return runner.attn_backend.max_len")
    assert names(audit(folder)) == {("max_len", "missing")}


def test_getattr_of_the_wrapper_saves_a_missing_name(release):
    folder = release(
        split="def __getattr__(self, name):\n    return getattr(self.decode_backend, name)",
        reader="return runner.attn_backend.max_len",
    )
    assert audit(folder).rows == ()


def test_getattr_of_the_wrapper_does_not_save_a_name_of_the_base_class(release):
    folder = release(
        beta="needs_lens = False",
        split="def __getattr__(self, name):\n    return getattr(self.decode_backend, name)",
        reader="return runner.attn_backend.needs_lens",
    )
    assert names(audit(folder)) == {("needs_lens", "shadowed")}


def test_a_base_default_that_a_child_overrides_is_shadowed(release):
    found = row(
        audit(release(beta="needs_lens = False", reader="return runner.attn_backend.needs_lens")),
        "needs_lens",
        "shadowed",
    )
    assert found.children == (("BetaBackend", "False"),)
    assert found.harm == "wrong default"


def test_a_child_that_repeats_the_base_default_shadows_nothing(release):
    folder = release(
        alpha='needs_lens = True\ndef on_warmup(self):\n    """Nothing."""',
        reader="return runner.attn_backend.on_warmup() or runner.attn_backend.needs_lens",
    )
    assert audit(folder).rows == ()


def test_a_refusing_default_that_a_caller_calls_is_a_crash(release):
    folder = release(
        alpha="def fix_buffers(self, spec_info): return spec_info",
        beta="def fix_buffers(self, spec_info): return None",
        reader="runner.attn_backend.fix_buffers(None)",
    )
    assert row(audit(folder), "fix_buffers", "shadowed").harm == "crash"


def test_a_hook_of_an_inherited_template_counts_as_read(release):
    folder = release(
        split="def forward_decode(self, q, layer): return self.pick(1)",
        files={
            "layers/attention/base.py": """
                class AttentionBackend:
                    def begin(self):
                        return self.hook()
                    def hook(self):
                        return 0
            """
        },
        alpha="def hook(self): return 1",
        beta="def hook(self): return 2",
        reader="runner.attn_backend.begin()",
    )
    found = row(audit(folder), "hook", "shadowed")
    assert [r.place for r in found.readers] == ["srt/layers/attention/base.py:AttentionBackend.begin"]


@pytest.mark.parametrize(
    "reader",
    [
        "if hasattr(runner.attn_backend, 'reset'):\n    runner.attn_backend.reset(1)",
        "reset = getattr(runner.attn_backend, 'reset', None)\nif reset is not None:\n    reset(1)",
        "try:\n    runner.attn_backend.reset(1)\nexcept AttributeError:\n    pass",
    ],
)
def test_a_guarded_read_of_a_missing_name_is_a_silent_skip(release, reader):
    found = row(audit(release(**BOTH, reader=reader)), "reset", "missing")
    assert found.harm == "silent skip"
    assert {r.access for r in found.readers} == {"guarded"}


def test_a_write_alone_is_a_lost_write_below_the_threshold(release):
    found = row(audit(release(reader="runner.attn_backend.max_len = 3")), "max_len", "missing")
    assert (found.harm, found.gap) == ("lost write", False)


@pytest.mark.parametrize(
    "reader",
    [
        "backend = runner.attn_backend\nother = backend\nreturn other.max_len",
        "backend = getattr(runner, 'attn_backend', None)\nreturn backend.max_len",
        "return [b.max_len for b in [runner.attn_backend] if b is not None]",
        "def inner():\n    return runner.attn_backend.max_len\nreturn inner()",
        "return helper(runner.attn_backend)\ndef unused(): pass",
    ],
)
def test_receivers_are_followed(release, reader):
    helper = {"model_executor/helping.py": "def helper(thing):\n    return thing.max_len\n"}
    imported = "from sglang.srt.model_executor.helping import helper\n"
    assert names(audit(release(reader=imported + reader, files=helper))) == {("max_len", "missing")}


@pytest.mark.parametrize(
    "reader",
    [
        "b = runner.attn_backend\nif isinstance(b, SplitBackend):\n    b = b.pick(mode)\nreturn b.max_len",
        "b = runner.attn_backend\nif isinstance(b, SplitBackend):\n    return 0\nreturn b.max_len",
        "b = runner.attn_backend\nassert not isinstance(b, SplitBackend)\nreturn b.max_len",
        "b = runner.attn_backend\nreturn 0 if isinstance(b, SplitBackend) else b.max_len",
        "b = runner.attn_backend\nif hasattr(b, 'decode_backend'):\n    b = b.decode_backend\nreturn b.max_len",
    ],
)
def test_a_reader_that_steps_through_the_wrapper_is_none_of_its_readers(release, reader):
    imported = "from sglang.srt.layers.attention.split import SplitBackend\n"
    assert audit(release(reader=imported + reader)).rows == ()


def test_a_read_behind_a_flag_that_the_wrapper_answers_false_weighs_little(release):
    members = {"alpha": "fast = True\nplan = 1", "beta": "fast = True\nplan = 2"}
    open_road = audit(release(**members, split="fast = False", reader="return runner.attn_backend.plan"))
    behind = "if runner.attn_backend.fast:\n    return runner.attn_backend.plan"
    gated = audit(release(**members, split="fast = False", reader=behind))
    assert row(open_road, "plan", "missing").gap
    assert not row(gated, "plan", "missing").gap


def test_a_leaf_that_reads_itself_is_no_reader(release):
    alpha = "def use(self, attn_backend):\n    return attn_backend.max_len"
    assert audit(release(alpha=alpha)).rows == ()


OTHER = """
    from sglang.srt.layers.attention.base import AttentionBackend

    class OuterBackend(AttentionBackend):
        def __init__(self, inner_backend: AttentionBackend):
            self.inner = inner_backend
        @property
        def max_len(self):
            return self.inner.max_len

    def wrap(runner):
        return OuterBackend(runner.attn_backend)
"""


def test_a_sibling_that_forwards_the_name_raises_the_score(release):
    reader = "return runner.attn_backend.max_len"
    alone = row(audit(release(reader=reader), ["SplitBackend"]), "max_len", "missing")
    both = row(
        audit(release(reader=reader, files={"layers/attention/outer.py": OTHER}), ["SplitBackend"]),
        "max_len",
        "missing",
    )
    assert both.score == pytest.approx(alone.score * 1.4, abs=0.001)


def test_rows_come_worst_first(release):
    folder = release(
        **BOTH,
        reader="if hasattr(runner.attn_backend, 'reset'):\n    return runner.attn_backend.max_len",
    )
    assert [(r.name, r.harm) for r in audit(folder).rows] == [("max_len", "crash"), ("reset", "silent skip")]


def test_only_the_wrappers_asked_for_are_reported(release):
    folder = release(reader="return runner.attn_backend.max_len", files={"layers/attention/outer.py": OTHER})
    assert {r.wrapper for r in audit(folder, ["OuterBackend"]).rows} <= {"OuterBackend"}


def test_an_unknown_wrapper_is_the_callers_error(release):
    with pytest.raises(ValueError, match="no wrapper named NoSuch in this release; it has SplitBackend"):
        audit(release(), ["NoSuch"])


def test_a_folder_without_sglang_is_the_callers_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no SGLang in"):
        audit(tmp_path)


def test_json_carries_the_count_of_gaps_and_the_rows(release):
    text = audit(release(reader="return runner.attn_backend.max_len")).to_json()
    told = json.loads(text)
    assert told["gaps"] == 1
    assert told["rows"][0]["name"] == "max_len"
