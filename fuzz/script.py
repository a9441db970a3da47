"""Writes a program and its finding as one standalone Python file: the standard library, torch and sglang only."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fuzz.confirm import Real
from fuzz.finding import BREACH, RULE, Finding
from fuzz.program import Program
from fuzz.steps import DRAFT_MODES, ScriptStep, script_steps
from fuzz.trace import PADDED, Trace
from fuzz.unmask import NEEDS
from stubs.tiny_model import tiny_config
from stubs.world import World

# atol = rtol of an output against float64, by dtype; on a GPU tensor cores round the products of fp16 too.
TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}
POISON = 1000.0  # far above any drawn value: a read of a slot that nobody wrote shows
OLD = (0, 5, 14)  # the first release without the roads that only older ones have
# Settings of a world that the script's text has no words for yet: they must have their default.
UNWRITTEN = (
    "kv_lora_rank",
    "kv_dtype",
    "v_head_dim",
    "sinks",
    "query_scalar",
    "alternate_layers",
    "xai_temperature_len",
    "save_kv_cache",
    "deterministic",
    "logit_shift",
    "wrapper",
)
SLOTS_LISTED_MAX = 6  # a longer irregular list is written as a string
FLAG_LINE_MAX = 118  # characters
LINE_MAX = 115  # characters of a line of a docstring
_SUPPLIED = re.compile(r"sglang\.srt\.([\w.]+)\.(\w+) from (\w+)")  # as fuzz.unmask.Supply spells it
# What the model's geometry needs; the rest is transformers' default, or a flag.
MODEL_FIELDS = (
    "architectures",
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "num_hidden_layers",
    "vocab_size",
    "max_position_embeddings",
)


class ScriptError(ValueError):
    """A finding that no standalone script can show; the message says why."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a finding comes from. ``found_on`` and ``seen_on`` are target specs; shown in ``shown`` of ``runs`` runs.

    ``real`` says the same of the real runner, None where it was not asked.
    """

    found_on: str
    seen_on: tuple[str, ...]
    shown: int
    runs: int
    command: str
    versions: str
    real: Real | None = None

    @property
    def under_real_runner(self) -> str:
        """For a line of the script's docstring."""
        if self.real is None:
            return ""
        if self.real.why_not:
            return f"cannot be tried ({one_line(self.real.why_not)})"
        return f"shown in {self.real.shown} of {self.real.runs} runs"


def write_script(program: Program, finding: Finding, trace: Trace, provenance: Provenance) -> str:
    """The text of the script. ``trace`` is a run of ``program`` that showed ``finding``. Raises ScriptError."""
    world = program.world
    _check_written(world)
    steps = script_steps(program, finding, trace)
    check = _check(finding, program.world, steps)
    plain = replace(world, sliding_window=0, logit_cap=0)  # the script sets them on the layers
    version = tuple(int(part) for part in re.findall(r"\d+", trace.sglang_version)[:3])
    values: dict[str, Any] = {
        **_head(program, finding, provenance),
        "headline": one_line(finding.title),
        "model": _wrapped(
            json.dumps({name: value for name, value in tiny_config(plain).items() if name in MODEL_FIELDS})
        ),
        "flags": _wrapped(_flags(world)),
        "prefill": world.prefill,
        "supplied": _SUPPLIED.findall(finding.evidence.get(NEEDS, "")),
        "is_twin": world.prefill == world.decode,
        "is_old": version < OLD,
        "window": world.sliding_window,
        "chunk": world.attention_chunk_size,
        "encoder": bool(world.encoder_decoder),
        "logit_cap": world.logit_cap,
        "dtype": world.dtype,
        "seed": program.seed,
        "has_mixed": any(step.mode == "MIXED" for step in steps),
        "has_idle": any(step.mode == "IDLE" for step in steps),
        "uses_verify": any(step.mode == "TARGET_VERIFY" for step in steps),
        "spec_steps": world.spec_steps,
        "spec_topk": world.spec_topk,
        "spec_draft_tokens": world.spec_draft_tokens,
        "check": check,
        "last_own": _own(steps[-1]) if steps else "[]",
        "poison": POISON if check != "exception" else None,
        "tolerance": TOLERANCES[world.dtype],
        "calls": [_call(step) for step in steps],
        "last_prefix": list(steps[-1].prefix) if steps else [],
        "last_encoder": list(steps[-1].encoder) if steps else [],
        **_exception(finding),
    }
    texts = templates()
    specific = texts.get_template("specific.py.jinja").render(values).strip("\n")
    return texts.get_template("script.py.jinja").render(values, specific=specific).strip("\n") + "\n"


def write_repro(program: Program, finding: Finding, trace: Trace | None, provenance: Provenance) -> str:
    """The text of a script; where none can show the finding, of a file that holds its program."""
    try:
        if trace is None:
            raise ScriptError("no run of it came back")
        return write_script(program, finding, trace, provenance)
    except ScriptError as error:
        return write_program(program, finding, str(error), provenance)


def write_program(program: Program, finding: Finding, reason: str, provenance: Provenance) -> str:
    """The text of a file that holds the program and what it shows, for `replay`; ``reason``: why it is no script."""
    about = {"reason": one_line(reason).rstrip("."), "needs": one_line(finding.evidence.get(NEEDS, ""))}
    template = templates().get_template("program.py.jinja")
    return template.render(_head(program, finding, provenance), **about).strip("\n") + "\n"


def _head(program: Program, finding: Finding, provenance: Provenance) -> dict[str, Any]:
    """What every saved file says of itself."""
    return {
        "title": one_line(finding.title).rstrip("."),
        "found_on": provenance.found_on,
        "seen_on": ", ".join(provenance.seen_on),
        "shown": provenance.shown,
        "runs": provenance.runs,
        "versions": provenance.versions,
        "real": provenance.under_real_runner,
        "command": provenance.command,
        "signature": str(finding.signature),
        "program": program.text.rstrip("\n"),
    }


def templates() -> Environment:
    """Those that saved files are written from."""
    environment = Environment(loader=PackageLoader("fuzz"), undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["quoted"] = json.dumps
    return environment


def _check_written(world: World) -> None:
    if world.is_speculative and not world.has_draft_model:
        raise ScriptError(f"scripts do not have worlds with spec_algorithm {world.spec_algorithm} yet")
    if world.graph or world.prefill_graph:  # without need for graphs, shrinking has left them out
        raise ScriptError("it needs captured graphs, which scripts do not have")
    for name in UNWRITTEN:
        if getattr(world, name) != getattr(World(), name):
            raise ScriptError(f"scripts do not have worlds with {name} {getattr(world, name)} yet")


def _check(finding: Finding, world: World, steps: tuple[ScriptStep, ...]) -> str:
    """How the script tells: an exception, a comparison after the last step, or not at all."""
    oracle, kind, place = finding.signature.parts
    if finding.mode in DRAFT_MODES:
        raise ScriptError("it is a fault of a step on the draft model, which scripts do not have yet")
    if finding.mode.endswith(PADDED):
        raise ScriptError("it is a fault of a padded step, which scripts do not have yet")
    if oracle == "contract" or kind == BREACH:
        return "exception"
    if oracle == "numeric" and not (steps[-1].mode == "TARGET_VERIFY" and "tree" in finding.mode):
        return "numeric"
    if kind == "history_dependent" and ".output." in place:
        return "history"
    if kind == "kv_not_written":
        return "kv"
    raise ScriptError(f"{finding.signature}: scripts have no check for this kind yet; replay the program instead")


def _exception(finding: Finding) -> dict[str, Any]:
    """What the exception that was found is known by."""
    _, kind, place = finding.signature.parts
    named, _, rule = place.partition(RULE)
    owner, _, name = named.rpartition(".")
    return {
        "attribute": _tuple(owner, name) if "attribute" in finding.evidence else None,
        "breach": _tuple(owner, name, rule) if kind == BREACH else None,
        "kind": kind,
        "function": finding.evidence.get("reader", place).rpartition(".")[2],
    }


def _tuple(*texts: str) -> str:
    return f"({', '.join(map(json.dumps, texts))})"


def _call(step: ScriptStep) -> str:
    values = f"rows={list(step.rows)}, prefix={list(step.prefix)}, own={_own(step)}"
    encoder = f", encoder={list(step.encoder)}" if step.encoder else ""
    return f'step(runner, "{step.mode}", {values}{encoder}{"" if step.host else ", host=False"})'


def _own(step: ScriptStep) -> str:
    return f"[{', '.join(_slots(slots) for slots in step.slots)}]"


def _slots(slots: tuple[int, ...]) -> str:
    """An expression that no formatter spreads over many lines."""
    if slots and slots == tuple(range(slots[0], slots[-1] + 1)):
        return f"range({slots[0]}, {slots[-1] + 1})"
    if len(slots) <= SLOTS_LISTED_MAX:
        return str(list(slots))
    return f'list(map(int, "{" ".join(map(str, slots))}".split()))'


def _flags(world: World) -> str:
    """The server's command line. The draft is the target's folder: it is never run."""
    flags = {
        "model-path": "MODEL",
        "load-format": "dummy",
        "dtype": world.dtype,
        "attention-backend": world.prefill,
        "prefill-attention-backend": world.prefill,
        "decode-attention-backend": world.decode,
        "page-size": world.page_size,
        "context-length": world.context_len,
        "max-running-requests": world.max_running_requests,
        "max-total-tokens": world.max_total_tokens,
        "triton-attention-num-kv-splits": 2,
    }
    if world.is_speculative:
        flags |= {
            "speculative-algorithm": world.spec_algorithm,
            "speculative-draft-model-path": "MODEL",
            "speculative-num-steps": world.spec_steps,
            "speculative-eagle-topk": world.spec_topk,
            "speculative-num-draft-tokens": world.spec_draft_tokens,
        }
        if world.spec_mode != "prefill":  # SGLang's default
            flags["speculative-attention-mode"] = world.spec_mode
    switches = ["--skip-tokenizer-init", "--disable-cuda-graph"]
    switches += [] if world.overlap else ["--disable-overlap-schedule"]
    return " ".join([*(f"--{name} {value}" for name, value in flags.items()), *switches])


def _wrapped(text: str) -> str:
    """``text`` over several lines, broken at spaces that end a flag's value or a JSON field."""
    lines, line = [], ""
    for part in re.split(r" (?=--|\")", text):
        if line and len(line) + 1 + len(part) > FLAG_LINE_MAX:
            lines.append(line)
            line = part
        else:
            line = f"{line} {part}" if line else part
    return "\n".join([*lines, line])


def one_line(text: str) -> str:
    """Safe inside a docstring, and no longer than a line of it may be."""
    line = " ".join(text.replace("\\", "/").replace('"', "'").split())
    return line if len(line) <= LINE_MAX else f"{line[: LINE_MAX - 3].rstrip()}..."
