"""Faults of different depth, as text for a release's wrapper: each shows when steps have come in one order, with none between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FILE = "sglang/srt/layers/attention/hybrid_attn_backend.py"
MODULE = "sglang.srt.layers.attention.hybrid_attn_backend"
# A mixed step is known by its rows, too: from 0.5.19 on SGLang's runner calls it an extend before it is planned.
# Fault -> the modes of the steps that lead to it. What the wrapper is not told of (an end, a retraction) may lie between.
FAULTS: Mapping[str, Sequence[str]] = {
    "three ops deep": ("EXTEND", "DECODE", "MIXED"),
    "five ops deep": ("EXTEND", "DECODE", "EXTEND", "MIXED", "DECODE"),
    "eight ops deep": ("EXTEND", "DECODE", "MIXED", "DECODE", "EXTEND", "DECODE", "MIXED", "DECODE"),
}
# A name for what showed, in the release's module: nothing is raised, so that one program may show more than one.
SHOWN = "PLANTED_SHOWN"

_END = """

def _mode(forward_batch):
    name = forward_batch.forward_mode.name
    if name != "EXTEND":
        return name
    rows = zip(forward_batch.extend_seq_lens_cpu, forward_batch.extend_prefix_lens_cpu)
    return "MIXED" if any(count == 1 and prefix > 0 for count, prefix in rows) else name


def _planted(honest):
    def init_forward_metadata(self, forward_batch):
        mode = _mode(forward_batch)
        stages = self.__dict__.setdefault("_planted_stages", [0] * len(_PLANTED))
        for place, (name, advance, most) in enumerate(_PLANTED):
            stages[place] = advance(stages[place], mode)
            if stages[place] == most:
                PLANTED_SHOWN.add(name)
        return honest(self, forward_batch)

    return init_forward_metadata


HybridAttnBackend.init_forward_metadata = _planted(HybridAttnBackend.init_forward_metadata)
"""


def planted(text: str) -> str:
    """The wrapper's source with the faults: each is a state that is built up, and each state is a branch, as in real code."""
    parts = [text, f"\n\n{SHOWN} = set()\n_PLANTED = []\n"]
    for place, (name, modes) in enumerate(FAULTS.items()):
        lines = [f"def _advance_{place}(stage, mode):"]
        for stage, mode in enumerate(modes):
            lines += [f"    {'el' * (stage > 0)}if stage == {stage}:", f"        if mode == {mode!r}:"]
            lines += [f"            return {stage + 1}"]
        lines += [f"    return 1 if mode == {modes[0]!r} else 0"]
        parts += ["\n\n", "\n".join(lines), f"\n\n\n_PLANTED.append(({name!r}, _advance_{place}, {len(modes)}))\n"]
    return "".join([*parts, _END])
