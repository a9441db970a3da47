"""Which faults are put where: kinds of fault on small functions, the choice among executed lines, and the copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.mutants import Mutant, by_statement, choose
from fuzz.mutate import alike
from fuzz.scratch import lay_out

FILE = "sglang/srt/layers/attention/toy_backend.py"
EVERY_LINE = set(range(1, 100))


def faults(text: str, executed: set[int] = EVERY_LINE) -> set[tuple[str, str]]:
    """(kind, the whole changed text) of each mutant."""
    kinds = [kinds for kinds in by_statement(FILE, text, executed)]
    return {(kind, one.apply(text)) for each in kinds for kind, ones in each.items() for one in ones}


def body(statement: str, arguments: str = "") -> str:
    return f"def f({arguments}):\n    {statement}\n"


@pytest.mark.parametrize(
    ("before", "kind", "after"),
    [
        ("return a < b", "comparison", "return a <= b"),
        ("return a is None", "comparison", "return a is not None"),
        ("return a - b", "sign", "return (a) + (b)"),
        ("return a + b", "dropped operand", "return (b)"),
        ("return a * b", "dropped operand", "return (a)"),
        ("return a & b", "dropped condition", "return (a)"),
        ("return a and b", "dropped condition", "return (b)"),
        ("return a[i]", "index off by one", "return a[(i) + 1]"),
        ("return a[: n, 0]", "index off by one", "return a[: (n) - 1, 0]"),
        ("return seq_lens", "length off by one", "return (seq_lens + 1)"),
        ("return len(a)", "length off by one", "return (len(a) - 1)"),
        ("return load(p, mask=m)", "dropped mask", "return load(p, mask=None)"),
        ("return load(p, mask=m)", "inverted mask", "return load(p, mask=((m) == 0))"),
        ("return g(a, 7)", "constant off by one", "return g(a, 8)"),
        ("return g(a, True)", "flag turned", "return g(a, False)"),
        ("return g(a, b)", "arguments swapped", "return g(b, a)"),
        ("return tl.maximum(a, b)", "min for max", "return tl.minimum(a, b)"),
        ("if not a: g()", "condition turned", "if (not (not a)): g()"),
        ("a.b = c", "dropped statement", "pass"),
        ("a += c", "dropped statement", "pass"),
    ],
)
def test_a_kind_of_fault(before: str, kind: str, after: str) -> None:
    assert (kind, body(after)) in faults(body(before))


@pytest.mark.parametrize(
    "statement",
    [
        '"""About 1 + 1."""',
        "assert a < b",
        'raise ValueError("1")',
        "import a",
        "logger.info(a + b)",
        "x: int | None",
        "return g(num_warps=4)",
        'return f"{a + b}"',
        "return",
    ],
)
def test_what_computes_nothing_is_left_alone(statement: str) -> None:
    assert faults(body(statement)) == set()


def test_a_variable_for_another_of_its_kind() -> None:
    text = body("return stride_kbs", "stride_kbs, stride_vbs, other")
    assert faults(text) == {("wrong variable", body("return stride_vbs", "stride_kbs, stride_vbs, other"))}


def test_a_variable_that_is_not_bound_yet_is_not_taken_for_another() -> None:
    assert faults("def f(q_x):\n    g(q_x)\n    k_x = 0\n", {2}) == {
        ("dropped statement", "def f(q_x):\n    pass\n    k_x = 0\n")
    }


def test_an_attribute_for_another_of_its_kind() -> None:
    text = "class A:\n    def f(self):\n        return self.k_pool, self.v_pool\n"
    assert faults(text) == {
        ("wrong attribute", "class A:\n    def f(self):\n        return self.v_pool, self.v_pool\n"),
        ("wrong attribute", "class A:\n    def f(self):\n        return self.k_pool, self.k_pool\n"),
    }


def test_a_delegation_is_removed_with_its_decorator() -> None:
    text = "class A:\n    @property\n    def name(self):\n        return self.child.name\n"
    assert faults(text) == {("removed delegation", "class A:\n    pass\n")}


def test_only_executed_statements_are_changed() -> None:
    assert faults("def f(a):\n    if a:\n        return 1\n    return 0\n", {2, 4}) == {
        ("condition turned", "def f(a):\n    if a:\n        return 1\n    return 0\n".replace("if a", "if (not (a))")),
        ("constant off by one", "def f(a):\n    if a:\n        return 1\n    return 1\n"),
    }


def test_the_branch_of_a_long_expression_that_did_not_run_is_left_alone() -> None:
    text = "def f(a):\n    return (\n        a.x < 1\n        if a\n        else a.y < 2\n    )\n"
    assert {kind for kind, changed in faults(text, {2, 4, 5}) if "a.x < 1" not in changed} == set()


def test_places_are_counted_in_characters() -> None:
    assert ("comparison", body('return "ü" <= b')) in faults(body('return "ü" < b'))


@pytest.mark.parametrize(
    ("one", "other", "is_alike"),
    [
        ("k", "v", True),
        ("a", "b", False),
        ("stride_kbs", "stride_vbs", True),
        ("kv_indptr", "qo_indptr", True),
        ("kv_indptr", "kv_indptr", False),
        ("kv_indptr", "mask", False),
        ("kv_indptr", "qo_indices", False),
    ],
)
def test_alike(one: str, other: str, is_alike: bool) -> None:
    assert alike(one, other) is is_alike


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder with a package sglang: two files of attention code and one elsewhere."""
    for name in ("__init__.py", "srt/__init__.py", "srt/other.py", "srt/layers/attention/more.py"):
        path = tmp_path / "release/sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def f(a, b):\n    return a + b\n")
    (tmp_path / "release" / FILE).write_text("def f(a, b):\n    return a + b\n\n\ndef g(a):\n    return a[1]\n")
    return tmp_path / "release"


def test_the_choice_is_the_seeds_own(release: Path) -> None:
    executed = {FILE: [2, 6]}
    assert choose(release, executed, 3, seed=5) == choose(release, executed, 3, seed=5)


def test_no_mutant_is_chosen_twice_and_none_outside_the_attention_code(release: Path) -> None:
    chosen = choose(release, {FILE: [2, 6], "sglang/srt/other.py": [2]}, 100, seed=0)
    assert {(mutant.file, mutant.line) for mutant in chosen} == {(FILE, 2), (FILE, 6)}
    # a + b: a sign, two operands; a[1]: two indices, two constants
    assert len(chosen) == len(set(chosen)) == 7


def test_diff() -> None:
    text = "def f(a, b):\n    return a < b\n"
    mutant = Mutant("x.py", 2, "f", "comparison", 24, 29, "a < b", "a <= b")
    assert mutant.diff(text).splitlines() == [
        "--- x.py",
        "+++ x.py",
        "@@ -1,2 +1,2 @@",
        " def f(a, b):",
        "-    return a < b",
        "+    return a <= b",
    ]


def test_a_copy_differs_in_one_file_and_holds_no_other(release: Path, tmp_path: Path) -> None:
    lay_out(release, tmp_path / "copy", FILE, "changed\n")
    copied = {
        path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*") if not path.is_dir()
    }
    made = {name for name in copied if not (tmp_path / "copy" / name).is_symlink()}
    assert made == {FILE}
    assert (tmp_path / "copy" / FILE).read_text() == "changed\n"
    assert (tmp_path / "copy/sglang/srt/other.py").read_text() == "def f(a, b):\n    return a + b\n"
    assert (release / FILE).read_text().startswith("def f")


def test_a_copy_takes_bytecode_over_but_for_the_changed_file(release: Path, tmp_path: Path) -> None:
    cache = release / "sglang/srt/layers/attention/__pycache__"
    cache.mkdir()
    for name in ("toy_backend", "more"):
        (cache / f"{name}.cpython-311.pyc").write_text("")
    lay_out(release, tmp_path / "copy", FILE, "changed\n")
    taken = tmp_path / "copy/sglang/srt/layers/attention/__pycache__"
    assert [path.name for path in taken.iterdir()] == ["more.cpython-311.pyc"]
