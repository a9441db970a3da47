"""What a row of a comparison says of the targets in their order."""

from __future__ import annotations

from fuzz.comparison import Cell, CompareResult, Row, in_order


def row(*states: str) -> Row:
    """One repro on targets t0, t1, ..."""
    cells = [Cell("a.py", f"t{number}", state, 3 if state == "bug" else 0, 3) for number, state in enumerate(states)]
    return Row("a.py", "contract/KeyError/f", in_order(cells))


def states(given: Row) -> list[str]:
    return [cell.state for cell in given.cells]


def test_clean_after_the_bug_is_fixed() -> None:
    assert states(row("clean", "bug", "clean", "clean")) == ["clean", "bug", "fixed", "fixed"]


def test_nothing_else_is_fixed() -> None:
    given = ["bug", "infra", "stub_gap", "unsupported", "other"]
    assert states(row(*given)) == given


def test_introduced_and_fixed_name_the_first_target() -> None:
    given = row("clean", "bug", "bug", "infra", "clean", "clean")
    assert (given.introduced_in, given.fixed_in) == ("t1", "t4")


def test_bug_on_the_first_target_was_not_introduced_there() -> None:
    given = row("bug", "infra")
    assert (given.introduced_in, given.fixed_in) == (None, None)


def test_bug_after_a_target_that_could_not_tell_was_not_introduced() -> None:
    assert row("unsupported", "bug").introduced_in is None


def test_exit_1_only_for_what_worked_on_the_first_target() -> None:
    targets = ("t0", "t1")
    assert CompareResult(targets, (row("clean", "bug"),)).exit_code == 1
    assert CompareResult(targets, (row("clean", "other"),)).exit_code == 1
    assert CompareResult(targets, (row("bug", "clean"), row("clean", "infra"), row("infra", "bug"))).exit_code == 0


def test_cells_are_plain() -> None:
    assert CompareResult(("t0",), (row("bug"),)).cells == [
        {"repro": "a.py", "target": "t0", "state": "bug", "k": 3, "n": 3, "detail": "", "sglang_version": ""}
    ]


def test_json_names_what_the_table_shows() -> None:
    data = CompareResult(("t0", "t1"), (row("bug", "clean"),)).to_json()
    assert data["exit_code"] == 0
    assert data["targets"] == ["t0", "t1"]
    assert (data["rows"][0]["fixed_in"], data["rows"][0]["introduced_in"]) == ("t1", None)
