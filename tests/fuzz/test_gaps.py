"""Which attempts a campaign makes at its end, and what it writes of the cells that stay open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fuzz.cells import CELLS, Cell
from fuzz.finding import Finding, Signature, Verdict
from fuzz.gaps import Gaps, read_cells
from fuzz.trace import Trace

PLAIN = ("extend", "extend_prefix", "extend_chunked", "mixed", "decode", "idle", "finish", "retract")
REFUSED = Trace(
    (),
    (Finding(Verdict.UNSUPPORTED, Signature("contract", "refused", "start-up"), "no", "", 0, "extend", {}),),
    0.0,
    "",
)


def gaps(**fields: Any) -> Gaps:
    return Gaps(**{"pairs": ("a:b",), "device": "cpu", "seed": 0, "reached": set(), **fields})


def left(one: Gaps) -> int:
    return len(list(iter(one.take, None)))


def test_each_attempt_is_taken_once() -> None:
    assert left(gaps()) == 41


def test_none_is_taken_of_what_was_reached() -> None:
    assert left(gaps(reached={("a:b", mode) for mode in PLAIN})) == 40
    assert left(gaps(reached={("a:b", mode) for mode in CELLS})) == 0


def test_none_is_taken_before_its_time_nor_after() -> None:
    assert left(gaps(begin=float("inf"))) == 0
    assert left(gaps(end=0.0)) == 0


def test_seeds_are_the_last_of_the_campaign() -> None:
    taken = gaps(seed=1).take()
    assert taken is not None and taken[0] == 2 * 1_000_003 - 1


def test_what_ran_in_an_earlier_run_is_not_taken_again() -> None:
    assert left(gaps(done={1_000_002, 1_000_001})) == 39


def test_open_cells_are_written_with_their_reasons(tmp_path: Path) -> None:
    one = gaps(reached={("a:b", mode) for mode in CELLS if mode not in ("decode_graph", "draft_decode")})
    taken = one.take()
    assert taken is not None
    one.settle(taken[1], REFUSED)
    one.write(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [(line["pair"], line["mode"], line["state"], line["reason"]) for line in lines] == [
        ("a:b", "decode_graph", "unsupported", "no"),
        ("a:b", "draft_decode", "", ""),
    ]


def test_a_pair_that_does_not_start_has_its_reason_in_every_cell(tmp_path: Path) -> None:
    gaps(pairs=(), refused={"a:c": "no c"}).write(tmp_path)
    assert read_cells(tmp_path, lambda note: None) == {("a:c", mode): Cell("unsupported", "no c") for mode in CELLS}


def test_reasons_are_kept_when_a_campaign_goes_on(tmp_path: Path) -> None:
    gaps(cells={("a:b", "mixed"): Cell("unsupported", "not mixed")}).write(tmp_path)
    assert read_cells(tmp_path, lambda note: None) == {("a:b", "mixed"): Cell("unsupported", "not mixed")}


def test_graphs_of_a_verify_that_is_refused_are_refused_untried() -> None:
    one = gaps(reached={("a:b", mode) for mode in CELLS if not mode.startswith("verify_tree_decode")})
    modes = []
    while (taken := one.take()) is not None:
        modes.append(taken[1].modes[0])
        one.settle(taken[1], REFUSED)
    assert modes == ["verify_tree_decode"] * 2
    assert one.cells["a:b", "verify_tree_decode_graph"] == Cell("unsupported", "no")
