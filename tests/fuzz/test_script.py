"""The script writer: its text, what the text imports, how long it is, and that programs can be read back from it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.confirm import Real
from fuzz.finding import Signature
from fuzz.program import Extend, Idle
from fuzz.repro import read_repro
from fuzz.script import ScriptError, write_program, write_script
from tests.fuzz.canned import PROVENANCE, Canned, kernel_error, missing_attribute, wrong_output

SCRIPTS = Path(__file__).parent.parent / "data" / "scripts"
LINES_MAX = 130
SPECIFIC_LINES_MAX = 30
CANNED = [missing_attribute, wrong_output, kernel_error]
MakeCanned = Callable[[], Canned]


@pytest.mark.parametrize("make", CANNED)
def test_the_text_is_the_golden_one(make: MakeCanned) -> None:
    assert write_script(*make(), PROVENANCE) == (SCRIPTS / f"{make.__name__}.py").read_text()


@pytest.mark.parametrize("make", CANNED)
def test_only_the_standard_library_and_torch_are_imported_by_name(make: MakeCanned) -> None:
    names = set()
    for node in ast.walk(ast.parse(write_script(*make(), PROVENANCE))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).partition(".")[0])
    assert names - set(sys.stdlib_module_names) == {"torch"}


@pytest.mark.parametrize("make", CANNED)
def test_everything_imported_by_text_is_of_sglang(make: MakeCanned) -> None:
    text = write_script(*make(), PROVENANCE)
    assert text.count("import_module(") == 1
    assert 'f"sglang.srt.{place}"' in text


@pytest.mark.parametrize("make", CANNED)
def test_the_text_is_formatted_and_short(make: MakeCanned, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(write_script(*make(), PROVENANCE))
    command = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", "--line-length", "120", str(path)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert len(path.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("make", CANNED)
def test_what_is_specific_to_the_fault_is_short(make: MakeCanned) -> None:
    lines = write_script(*make(), PROVENANCE).splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith(("def is_wrong", "def shows"))), None)
    first = lines.index('if __name__ == "__main__":') if first is None else first
    assert len(lines) - first <= SPECIFIC_LINES_MAX


@pytest.mark.parametrize("make", CANNED)
def test_the_program_is_read_back(make: MakeCanned, tmp_path: Path) -> None:
    program, finding, trace = make()
    (tmp_path / "script.py").write_text(write_script(program, finding, trace, PROVENANCE))
    read = read_repro(tmp_path / "script.py")
    assert (read.program, read.signature, read.found_on) == (program, finding.signature, "pypi:0.5.16")


def test_a_long_irregular_list_of_slots_stays_on_one_line() -> None:
    program, finding, trace = wrong_output()
    slots = [[9, 3, 7, 1, 5, 8, 2, 40], [12]]
    decode = replace(trace.steps[1], batch=trace.steps[1].batch | {"slots": slots, "prefix": [7, 0]})
    text = write_script(program, finding, replace(trace, steps=(trace.steps[0], decode)), PROVENANCE)
    assert 'own=[list(map(int, "9 3 7 1 5 8 2 40".split())), range(12, 13)]' in text


def test_a_title_cannot_end_the_docstring() -> None:
    program, finding, trace = missing_attribute()
    text = write_script(program, replace(finding, title='""" + boom()\n\\'), trace, PROVENANCE)
    assert ast.get_docstring(ast.parse(text)).splitlines()[0] == "''' + boom() /"  # type: ignore[union-attr]


def test_a_title_that_is_cut_says_so() -> None:
    program, finding, trace = missing_attribute()
    text = write_script(program, replace(finding, title="key " * 40), trace, PROVENANCE)
    assert ast.get_docstring(ast.parse(text)).splitlines()[0] == "key " * 27 + "key..."  # type: ignore[union-attr]


def test_a_fault_that_needs_graphs_is_refused() -> None:
    program, finding, trace = missing_attribute()
    captured = replace(program, world=replace(program.world, graph=1))
    with pytest.raises(ScriptError, match="it needs captured graphs"):
        write_script(captured, finding, trace, PROVENANCE)


def test_a_fault_that_no_script_can_show_is_refused() -> None:
    program, finding, trace = wrong_output()
    foreign = replace(finding, signature=Signature("state", "foreign_slot", "TritonAttnBackend.kv_indices.decode"))
    with pytest.raises(ScriptError, match=r"state/foreign_slot.*replay the program instead"):
        write_script(program, foreign, trace, PROVENANCE)


def test_a_world_that_scripts_have_no_words_for_is_refused() -> None:
    program, finding, trace = wrong_output()
    shifted = replace(program, world=replace(program.world, logit_shift=-200))
    with pytest.raises(ScriptError, match="scripts do not have worlds with logit_shift -200 yet"):
        write_script(shifted, finding, trace, PROVENANCE)


@pytest.mark.parametrize("mode", ["draft_prefill", "draft_extend"])
def test_a_fault_of_a_draft_step_is_refused(mode: str) -> None:
    program, finding, trace = missing_attribute()
    with pytest.raises(ScriptError, match="draft model"):
        write_script(program, replace(finding, mode=mode), trace, PROVENANCE)


def test_a_refused_call_is_known_by_the_function_that_made_it() -> None:
    program, finding, trace = kernel_error()
    refused = Signature("contract", "TypeError", "TritonAttnBackend.forward_decode")
    finding = replace(finding, signature=refused, evidence={"reader": "AttentionBackend.forward"})
    text = write_script(program, finding, trace, PROVENANCE)
    assert 'return type(error).__name__ == "TypeError" and names[-1:] == ["forward"]' in text


def test_a_breach_is_known_by_function_argument_and_rule() -> None:
    program, finding, trace = kernel_error()
    breach = Signature("bounds", "contract_breach", "Wrapper.plan.qo_indptr:falls")
    text = write_script(program, replace(finding, signature=breach), trace, PROVENANCE)
    assert '("function", "argument", "rule")) == ("Wrapper.plan", "qo_indptr", "falls")' in text


def test_an_idle_step_plans_no_metadata() -> None:
    program, finding, trace = wrong_output()
    empty: dict[str, object] = {"forward_mode": "IDLE", "seq_lens_cpu": []}
    empty |= {name: [] for name in ("requests", "req_pool_indices", "prefix", "count", "slots")}
    idle = replace(trace.steps[0], op_index=1, mode="idle", batch=empty)
    assert isinstance(program.ops[0], Extend)
    program = replace(program, ops=(program.ops[0], Idle(), program.ops[1]))
    decode = replace(trace.steps[1], op_index=2)
    trace = replace(trace, steps=(trace.steps[0], idle, decode))
    text = write_script(program, replace(finding, op_index=2), trace, PROVENANCE)
    assert 'step(runner, "IDLE", rows=[], prefix=[], own=[])' in text
    assert "        if batch.batch_size:\n            backend.init_forward_metadata(batch)" in text


@pytest.mark.release
@pytest.mark.parametrize(("version", "status"), [("0.5.16", 1), ("0.5.17", 0)])
def test_the_script_of_the_missing_attribute_tells_releases_apart(
    version: str, status: int, target_folder: Callable[[str], Path]
) -> None:
    script = SCRIPTS / "missing_attribute.py"
    command = [sys.executable, "-m", "fuzz.run_script", str(script), "--target", f"path:{target_folder(version)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=SCRIPTS.parent.parent.parent)
    assert done.returncode == status, done.stderr[-2000:]


def test_what_lies_behind_a_forgotten_name_supplies_it() -> None:
    program, finding, trace = wrong_output()
    needs = (
        "sglang.srt.layers.attention.hybrid_attn_backend.HybridAttnBackend.max_context_len from prefill_backend; "
        "sglang.srt.layers.attention.tbo_backend.TboAttnBackend.plan from primary"
    )
    text = write_script(program, replace(finding, evidence={**finding.evidence, "needs": needs}), trace, PROVENANCE)
    assert (
        """
    # Supplied, as if the wrapper forwarded it: what this script shows lies behind.
    HybridAttnBackend = get("layers.attention.hybrid_attn_backend.HybridAttnBackend")
    HybridAttnBackend.max_context_len = property(lambda self: self.prefill_backend.max_context_len)
    # Supplied, as if the wrapper forwarded it: what this script shows lies behind.
    TboAttnBackend = get("layers.attention.tbo_backend.TboAttnBackend")
    TboAttnBackend.plan = property(lambda self: self.primary.plan)
"""
        in text
    )


@pytest.mark.parametrize(
    ("real", "line"),
    [
        (Real(2, 3), "Under SGLang's own ModelRunner: shown in 2 of 3 runs."),
        (
            Real(why_not="unsupported: no window"),
            "Under SGLang's own ModelRunner: cannot be tried (unsupported: no window).",
        ),
    ],
)
@pytest.mark.parametrize("make", [wrong_output, missing_attribute])
def test_real_runner_has_its_line(make: MakeCanned, real: Real, line: str) -> None:
    plain = write_script(*make(), PROVENANCE).splitlines()
    assert write_script(*make(), replace(PROVENANCE, real=real)).splitlines() == [*plain[:3], line, *plain[3:]]
    program, finding, _ = make()
    assert line in write_program(program, finding, "reason", replace(PROVENANCE, real=real)).splitlines()


def test_program_file_says_what_it_needs() -> None:
    program, finding, _ = wrong_output()
    needy = replace(finding, evidence={"needs": "sglang.srt.a.B.name from child"})
    assert (
        "Needs sglang.srt.a.B.name from child, which the wrapper lacks: `seamripper replay` supplies it."
        in write_program(program, needy, "reason", PROVENANCE).splitlines()
    )
    assert "Needs" not in write_program(program, finding, "reason", PROVENANCE)


def seamripper_beside(folder: Path, status: int) -> str:
    """A python with a `seamripper` beside it that notes what it is asked and leaves with ``status``."""
    python = folder / "python"
    python.symlink_to(sys.executable)
    stand_in = folder / "seamripper"
    stand_in.write_text(f'#!/bin/sh\necho "$@" > "{folder}/asked"\nexit {status}\n')
    stand_in.chmod(0o755)
    return str(python)


@pytest.mark.parametrize(("answered", "status"), [(0, 0), (1, 1), (125, 125), (2, 125), (3, 125)])
def test_program_file_run_by_itself_asks_seamripper(tmp_path: Path, answered: int, status: int) -> None:
    file = tmp_path / "repro.py"
    file.write_text(write_program(*wrong_output()[:2], "reason", PROVENANCE))
    python = seamripper_beside(tmp_path, answered)
    environment = {"SEAMRIPPER_TARGET": "pypi:0.5.16", "PATH": ""}
    assert subprocess.run([python, str(file)], env=environment, check=False).returncode == status
    assert (tmp_path / "asked").read_text() == f"replay {file} --target pypi:0.5.16 --python {python}\n"


def test_program_file_without_seamripper_cannot_tell(tmp_path: Path) -> None:
    file = tmp_path / "repro.py"
    file.write_text(write_program(*wrong_output()[:2], "reason", PROVENANCE))
    (tmp_path / "python").symlink_to(sys.executable)
    done = subprocess.run([str(tmp_path / "python"), str(file)], env={"PATH": ""}, capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode()) == (
        125,
        f"seamripper is not installed; where it is: seamripper replay {file}\n",
    )
