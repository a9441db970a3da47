"""The graph oracle on made-up steps: replays against eager runs, and host reads told by their place in SGLang."""

from __future__ import annotations

from pathlib import Path
from traceback import FrameSummary
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuzz.oracle import graph as graph_oracle
from fuzz.oracle.graph import host_reads, replay_equals_eager
from fuzz.oracle.view import Fault, StepView
from stubs.graph import HostRead
from stubs.tap import Tap
from stubs.world import World

NAN = float("nan")


class Leaf:
    pass


def judged(replayed: list[float], eager: list[float], *, graph: Any = True, **world: Any) -> list[Fault]:
    def tap(values: list[float]) -> Tap:
        out = torch.tensor(values)[:, None]
        return Tap(0, out, out, out, out)

    rows = [SimpleNamespace(prefix=4, count=1) for _ in replayed]
    plan = SimpleNamespace(mode="decode_graph", graph=graph or None, rows=rows, padded_size=4)
    view = StepView(World(**world), plan, [tap(replayed)], [], {}, {}, None, Leaf(), lambda: ([tap(eager)], None))  # type: ignore[arg-type]
    return replay_equals_eager(view)


@pytest.fixture(autouse=True)
def unexplained(monkeypatch: pytest.MonkeyPatch) -> None:
    """These steps have no KV by which an output could be explained."""
    monkeypatch.setattr(graph_oracle, "what_is_wrong", lambda view: ("wrong_output",))


def explain(patch: pytest.MonkeyPatch, replayed: tuple[str, ...], eager: tuple[str, ...] = ()) -> None:
    """What is wrong with an output of 1, the replay's, and with any other."""
    patch.setattr(graph_oracle, "what_is_wrong", lambda view: replayed if float(view.taps[0].out[0]) == 1 else eager)


def test_equal_within_what_both_may_deviate() -> None:
    assert judged([1.0, 2.0], [1.0 + 3e-5, 2.0]) == []


def test_a_wrong_row() -> None:
    (fault,) = judged([1.0, 2.0, 3.5], [1.0, 2.0, 3.0])
    assert str(fault.signature) == "state/replay_differs/Leaf.decode_graph"
    assert fault.title == "decode_graph on Leaf: the replayed graph gives other output than an eager run"
    assert fault.message.startswith("layer 0: largest error 0.5, row 2 of 3; requests have")
    assert fault.message.endswith("padded to 4")


def test_the_rule_that_explains_a_wrong_replay_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    explain(monkeypatch, replayed=("window_ignored", "logit_cap_ignored"))
    faults = judged([1.0], [2.0])
    assert [str(fault.signature) for fault in faults] == [
        "state/replay_window_ignored/Leaf.decode_graph",
        "state/replay_logit_cap_ignored/Leaf.decode_graph",
    ]
    assert faults[0].title.endswith(" gives other output than an eager run: window ignored")


def test_a_rule_that_the_eager_run_breaks_too_is_not_the_graphs_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    explain(monkeypatch, replayed=("tree_mask_ignored", "window_ignored"), eager=("tree_mask_ignored",))
    assert [fault.signature.kind for fault in judged([1.0], [2.0])] == ["replay_window_ignored"]
    explain(monkeypatch, replayed=("tree_mask_ignored",), eager=("tree_mask_ignored",))
    assert [fault.signature.kind for fault in judged([1.0], [2.0])] == ["replay_differs"]


def test_a_right_replay_is_not_to_blame_for_a_wrong_eager_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_oracle, "what_is_wrong", lambda view: ())
    assert judged([1.0], [2.0]) == []


def test_how_many_times_the_tolerance_it_is_off() -> None:
    (fault,) = judged([1.0, NAN, 4.0], [1.0, NAN, 3.0])
    assert fault.evidence == {"times_tolerance": "1.25e+04"}  # 1 / (2e-5 * (1 + 3))


def test_a_row_that_the_graph_left_unwritten() -> None:
    (fault,) = judged([1.0, NAN], [1.0, 2.0])
    assert str(fault.signature) == "state/replay_unwritten/Leaf.decode_graph"
    assert fault.message.startswith("layer 0: rows [1] of 2 are NaN")


def test_nan_on_both_sides_is_the_eager_runs_affair() -> None:
    assert judged([1.0, NAN], [1.0, NAN]) == []


def test_a_narrow_dtype_has_its_own_tolerance() -> None:
    assert (judged([1.0], [1.01], dtype="bfloat16"), len(judged([1.0], [1.01]))) == ([], 1)


def test_logits_far_off_are_less_exact() -> None:
    assert (judged([1.0], [1.0003], logit_shift=200), len(judged([1.0], [1.0003]))) == ([], 1)


def test_steps_without_a_graph_are_left_alone() -> None:
    assert judged([1.0], [2.0], graph=None) == []


def test_the_numeric_oracle_is_shown_the_eager_run() -> None:
    eager = [SimpleNamespace()]
    plan = SimpleNamespace(graph=True)
    view = StepView(World(), plan, [], [], {}, {}, None, Leaf(), lambda: (eager, None))  # type: ignore[arg-type, return-value]
    assert view.eagerly().taps is eager


@pytest.fixture
def backend(tmp_path: Path) -> str:
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "backend.py").write_text("class Backend:\n    def forward(self, x):\n        return x.item()\n")
    return str(package / "backend.py")


def test_a_host_read_is_told_by_its_place_in_sglang_and_once(backend: str) -> None:
    stack = (
        FrameSummary("run.py", 1, "main"),
        FrameSummary(backend, 3, "forward"),
        FrameSummary("torch.py", 9, "item"),
    )
    (fault,) = host_reads([HostRead("aten::_local_scalar_dense", stack)] * 2)
    assert str(fault.signature) == "state/host_read_in_capture/Backend.forward"
    assert fault.title == (
        "Backend.forward reads a tensor on the host while a graph is captured (aten::_local_scalar_dense)"
    )
