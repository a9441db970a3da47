"""What a graph's layers gave: as a model has it before the next layer runs."""

from __future__ import annotations

import torch

from stubs.answer import Answer
from stubs.graph import Graph


def test_an_answer_is_used_before_the_next_layer_writes_to_the_same_buffer() -> None:
    buffer, x, outs = torch.zeros(2), torch.tensor([1.0, 2.0]), list[Answer]()
    graph = Graph()
    with graph.capture():
        for factor in (1, 10):
            buffer.copy_(x * factor)
            outs.append(Answer.of(buffer.view(2, 1)))
    x.copy_(torch.tensor([3.0, 4.0]))
    graph.replay()
    assert [out.used.flatten().tolist() for out in outs] == [[3.0, 4.0], [30.0, 40.0]]


def test_an_answer_that_a_replay_does_not_write_is_nan() -> None:
    given, outs = torch.ones(2), list[Answer]()
    graph = Graph()
    with graph.capture():
        outs.append(Answer.of(given))
    outs[0].forget()
    graph.replay()
    assert outs[0].used.isnan().all()
