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
    assert (given.introduced_in, given.fixed_in) == ("t1", "t3..t4")


def test_coming_back_is_no_introduction() -> None:
    given = row("clean", "bug", "clean", "infra", "bug")
    assert (given.introduced_in, given.fixed_in, given.back_again_in) == ("t1", "t2", "t3..t4")


def test_too_few_clean_runs_are_no_fix() -> None:
    given = row("bug", "unsure", "clean")
    assert (states(given), given.fixed_in) == (["bug", "unsure", "fixed"], "t1..t2")


def test_latent_is_what_every_target_has_that_can_be_told() -> None:
    assert row("infra", "bug", "bug").is_latent
    assert not row("bug", "clean").is_latent
    assert not row("infra").is_latent


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
    (cell,) = CompareResult(("t0",), (row("bug"),)).cells
    assert {key: cell[key] for key in ("repro", "target", "state", "k", "n", "detail", "cached")} == {
        "repro": "a.py",
        "target": "t0",
        "state": "bug",
        "k": 3,
        "n": 3,
        "detail": "",
        "cached": 0,
    }
    assert [round(cell[end], 3) for end in ("low", "high")] == [0.26, 1.0]


def test_cell_that_never_ran_has_no_interval() -> None:
    cell = Cell("a.py", "t0", "infra", 0, 0).to_json()
    assert (cell["low"], cell["high"]) == (None, None)


def test_json_names_what_the_table_shows() -> None:
    data = CompareResult(("t0", "t1", "t2"), (row("bug", "clean", "bug"),)).to_json()
    assert (data["exit_code"], data["targets"]) == (0, ["t0", "t1", "t2"])
    (line,) = data["rows"]
    assert (line["introduced_in"], line["fixed_in"], line["back_again_in"], line["latent"]) == (None, "t1", "t2", False)
    assert line["changes"] == [{"kind": "fixed", "in": "t1"}, {"kind": "back again", "in": "t2"}]
