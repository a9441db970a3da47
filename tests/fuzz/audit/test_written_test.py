"""The pytest file that the audit writes: what it asks, and what it imports."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from fuzz.audit import Check, audit, write_test


def literal(path: Path, name: str) -> object:
    """The value of a constant of the written file."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == name:
            assert statement.value is not None
            return ast.literal_eval(statement.value)
    raise AssertionError(f"no {name} in {path}")


def test_a_gap_is_asked_for_with_the_value_of_the_children(release):
    checks = audit(release(reader="return runner.attn_backend.max_len")).checks
    assert checks == (Check("SplitBackend", "max_len", "value", value="runner:context_len"),)


def test_a_name_handed_to_a_child_is_asked_for_too(release):
    checks = audit(release(reader="runner.attn_backend.forward_decode(1, 2)")).checks
    assert checks == (
        Check(
            "SplitBackend",
            "forward_decode",
            "call",
            parameters=("q", "layer"),
            slots=("decode_backend",),
            on_base=True,
        ),
    )


def test_a_call_on_a_chosen_child_is_asked_per_mode(release):
    folder = release(
        alpha="def plan(self, batch): return 1",
        beta="def plan(self, batch): return 2",
        split="def plan(self, batch):\n    return self.pick(batch).plan(batch)",
        reader="runner.attn_backend.plan(mode)",
    )
    (check,) = audit(folder).checks
    assert (check.slots, check.per_mode) == (("decode_backend", "prefill_backend"), True)


def test_the_file_holds_the_checks_and_where_the_wrappers_live(release, tmp_path):
    path = tmp_path / "test_written.py"
    write_test(audit(release(reader="return runner.attn_backend.max_len")), path)
    assert literal(path, "CHECKS") == [
        {"wrapper": "SplitBackend", "name": "max_len", "kind": "value", "value": "runner:context_len"}
    ]
    assert literal(path, "WRAPPERS") == {
        "SplitBackend": {
            "module": "sglang.srt.layers.attention.split",
            "slots": ("decode_backend", "prefill_backend"),
            "reads": (),
        }
    }


def test_the_file_imports_only_pytest_torch_sglang_and_the_standard_library(release, tmp_path):
    path = tmp_path / "test_written.py"
    write_test(audit(release(reader="return runner.attn_backend.max_len")), path)
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported - sys.stdlib_module_names == {"pytest", "torch", "sglang"}
