"""The oracles, in the order in which they judge a step: each is a function from a StepView to its faults."""

from __future__ import annotations

from fuzz.oracle import bounds, graph, lengths, numeric, state
from fuzz.oracle.view import Fault, StepView

ORACLES = (
    bounds.kernels_in_bounds,
    bounds.guards_intact,
    state.batch_sound,
    state.tokens_as_given,
    state.inputs_unchanged,
    state.kv_written_where_told,
    state.kv_left_to_the_model,
    state.metadata_sound,
    lengths.host_lengths_needed,
    graph.replay_equals_eager,
    numeric.matches_reference,
    state.cold_equals_warm,
)

__all__ = ["ORACLES", "Fault", "StepView"]
