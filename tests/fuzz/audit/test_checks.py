"""What the audit says of what a wrapper does answer: refused calls, dropped keywords, twins, the wrong child."""

from __future__ import annotations

from fuzz.audit import audit
from tests.fuzz.audit.conftest import BOTH, row


def test_a_call_that_the_wrapper_refuses_and_a_child_takes(release):
    folder = release(**BOTH, split="def reset(self): pass", reader="runner.attn_backend.reset(1)")
    found = row(audit(folder), "reset", "signature")
    assert (
        found.why
        == "SplitBackend.reset takes 0 positional arguments, is given 1 by its caller, which the backend below would take"
    )


def test_a_call_of_the_wrapper_that_a_child_refuses(release):
    folder = release(
        alpha="def reset(self, a, b): pass",
        beta="def reset(self, a): pass",
        split="def reset(self, a):\n    self.decode_backend.reset(a, 2)",
        reader="runner.attn_backend.reset(1)",
    )
    found = row(audit(folder), "reset", "signature")
    assert found.children == (("BetaBackend", "def"),)
    assert found.why == "the wrapper's own call: BetaBackend.reset takes 1 positional arguments, is given 2"


def test_a_keyword_handed_on_to_a_child_that_takes_none(release):
    folder = release(
        alpha="def reset(self, a, **kwargs): pass",
        beta="def reset(self, a): pass",
        split="def reset(self, a, **kwargs):\n    self.decode_backend.reset(a, **kwargs)",
        reader="runner.attn_backend.reset(1, extra=2)",
    )
    found = row(audit(folder), "reset", "signature")
    assert (found.harm, found.children) == ("dropped keyword", (("BetaBackend", "def"),))


def test_two_defs_of_one_name_in_a_class_body(release):
    split = "def reset(self, a): return a\ndef reset(self, a): return self.decode_backend.reset(a)"
    found = row(audit(release(**BOTH, split=split, reader="runner.attn_backend.reset(1)")), "reset", "twin")
    assert (found.harm, found.gap) == ("dead twin", True)


def test_a_setter_is_no_twin(release):
    split = "@property\ndef size(self): return 1\n@size.setter\ndef size(self, value): pass"
    assert audit(release(split=split, reader="return runner.attn_backend.size")).rows == ()


def test_a_flag_of_the_other_phase_is_taken_from_the_wrong_child(release):
    folder = release(
        alpha="prefill_limit = 1",
        beta="prefill_limit = 2",
        split="@property\ndef prefill_limit(self): return self.decode_backend.prefill_limit",
        reader="return runner.attn_backend.prefill_limit",
    )
    found = row(audit(folder), "prefill_limit", "wrong_child")
    assert found.why == "handed to decode_backend alone, though the name speaks of prefill"


def test_a_flag_of_its_own_phase_is_taken_from_the_right_child(release):
    folder = release(
        alpha="prefill_limit = 1",
        beta="prefill_limit = 2",
        split="@property\ndef prefill_limit(self): return self.prefill_backend.prefill_limit",
        reader="return runner.attn_backend.prefill_limit",
    )
    assert audit(folder).rows == ()


def test_a_flag_of_one_child_whose_reader_drives_both_is_taken_from_the_wrong_child(release):
    members = "def begin(self): pass\nfill = {}"
    folder = release(
        alpha=members.format(1),
        beta=members.format(0),
        split="""
            def begin(self):
                self.decode_backend.begin()
                self.prefill_backend.begin()
            @property
            def fill(self): return self.decode_backend.fill
        """,
        reader="runner.attn_backend.begin()\nreturn runner.attn_backend.fill",
    )
    found = row(audit(folder), "fill", "wrong_child")
    assert found.why == "handed to decode_backend alone, though its reader drives both children through begin"


def test_a_flag_on_which_the_children_agree_is_taken_from_either(release):
    members = "def begin(self): pass\nfill = 1"
    folder = release(
        alpha=members,
        beta=members,
        split="""
            def begin(self):
                self.decode_backend.begin()
                self.prefill_backend.begin()
            @property
            def fill(self): return self.decode_backend.fill
        """,
        reader="runner.attn_backend.begin()\nreturn runner.attn_backend.fill",
    )
    assert audit(folder).rows == ()
