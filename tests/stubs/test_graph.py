"""Graphs on a CPU, on plain functions: what a replay repeats, what it is blind to, and what a capture may not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from stubs.graph import Graph, ReplayError
from stubs.interpreter import fast
from stubs.kernels.door import closed_kernel
from tests.stubs.graph_kernel import add_one


def captured(body: Callable[[], Any], host: tuple[torch.Tensor, ...] = ()) -> Graph:
    graph = Graph(host=host)
    with graph.capture():
        body()
    return graph


def test_a_replay_computes_anew_from_what_the_captured_tensors_hold() -> None:
    x, outs = torch.tensor([1.0, 2.0]), []
    graph = captured(lambda: outs.append(x * 2 + 1))
    x.copy_(torch.tensor([5.0, 7.0]))
    graph.replay()
    assert outs[0].tolist() == [11.0, 15.0]


def test_no_python_runs_again() -> None:
    runs = []
    graph = captured(lambda: runs.append(torch.ones(2) + 1))
    graph.replay()
    assert len(runs) == 1


def test_a_number_computed_at_capture_stays() -> None:
    x, factor, outs = torch.tensor([1.0]), [3], []
    graph = captured(lambda: outs.append(x * factor[0]))
    factor[0] = 5
    x.fill_(2.0)
    graph.replay()
    assert outs[0].tolist() == [6.0]


def test_a_buffer_that_is_replaced_is_not_seen() -> None:
    holder, outs = {"x": torch.tensor([1.0])}, []
    graph = captured(lambda: outs.append(holder["x"] + 1))
    holder["x"] = torch.tensor([9.0])
    graph.replay()
    assert outs[0].tolist() == [2.0]


def test_views_and_in_place_operations_work_on_the_same_memory() -> None:
    x = torch.zeros(4)
    graph = captured(lambda: x[1:3].add_(1))
    graph.replay()
    assert x.tolist() == [0.0, 2.0, 2.0, 0.0]


@pytest.mark.parametrize(
    ("read", "operation"),
    [
        (lambda x: x.max().item(), "aten::_local_scalar_dense"),
        (lambda x: bool(x.sum() > 0), "aten::_local_scalar_dense"),
        (lambda x: x.tolist(), "Tensor.tolist"),
        (lambda x: x.cpu(), "Tensor.cpu"),
        (lambda x: x.numpy(), "Tensor.numpy"),
        (lambda x: x.nonzero(), "aten::nonzero"),
        (lambda x: x[x > 0], "aten::index"),
    ],
)
def test_a_host_read_in_a_capture_is_told_with_its_place(read: Callable[[torch.Tensor], Any], operation: str) -> None:
    x = torch.tensor([1.0, 0.0])
    (found,) = captured(lambda: read(x)).host_reads
    assert found.operation == operation
    assert any(frame.filename == __file__ and frame.name == "<lambda>" for frame in found.stack)


def test_the_hosts_own_tensors_may_be_read_and_what_comes_of_them_is_done_once() -> None:
    lengths = torch.tensor([3, 5])
    graph = captured(lambda: int((lengths + 1).max()), host=(lengths,))
    assert (graph.host_reads, graph.nodes) == ([], [])


def test_a_closed_kernel_is_one_node_and_answers_into_the_captured_result() -> None:
    calls, x, outs = [], torch.tensor([2.0]), []

    @closed_kernel
    def kernel(q: torch.Tensor) -> torch.Tensor:
        calls.append(q.max().item())  # what it does within is no host read
        return q * q

    graph = captured(lambda: outs.append(kernel(x)))
    x.fill_(3.0)
    graph.replay()
    assert ([node.operation for node in graph.nodes], graph.host_reads) == (["kernel"], [])
    assert (calls, outs[0].tolist()) == ([2.0, 3.0], [9.0])


def test_a_closed_kernel_runs_as_it_is_outside_of_a_capture() -> None:
    assert closed_kernel(lambda x: x + 1)(1) == 2


def test_a_triton_launch_is_repeated_with_the_grid_of_its_capture() -> None:
    x, blocks = torch.zeros(6, dtype=torch.int32), [2]
    with fast():
        graph = captured(lambda: add_one[lambda meta: (blocks[0],)](x, BLOCK=2))
        blocks[0] = 3
        graph.replay()
    assert x.tolist() == [2, 2, 2, 2, 0, 0]


def test_an_operation_that_fails_at_replay_is_told_with_its_place() -> None:
    table, index = torch.arange(4), torch.tensor([1])
    graph = captured(lambda: table[index])
    index.fill_(9)
    with pytest.raises(
        ReplayError, match="aten::index fails when the graph is replayed: index 9 is out of bounds"
    ) as e:
        graph.replay()
    assert any(frame.filename == __file__ for frame in e.value.stack)


def test_captures_do_not_nest() -> None:
    with Graph().capture(), pytest.raises(AssertionError, match="within another's capture"), Graph().capture():
        pass
