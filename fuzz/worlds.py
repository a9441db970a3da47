"""Draws the world of a program: small geometries whose limits a short program can reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fuzz.choice import Choices
from fuzz.model_kinds import draw_kind
from fuzz.served import draws, serves
from stubs.page_sizes import PAGE_SIZES_OF
from stubs.speculation import BLOCKS
from stubs.world import World
from stubs.world_rules import LAYOUTS, SPEC_MODES, plans_prefill

PAGE_SIZES = (1, 2, 4, 8, 16)
LARGE_PAGES = (32, 64, 128)  # served, but few programs come to the end of such a page
SPEC_STEPS_MAX = 4  # drafts in service have 2 to 5 steps; each costs a row of every request
HEADS = ((2, 1), (1, 1), (2, 2), (4, 2))
# Short contexts are come to the end of within a program; 96 leaves room for trees on pages of their own.
# 128 leaves some for a prompt of more than one of Triton's blocks.
CONTEXT_LENS = (32, 16, 24, 48, 64, 96, 128)
# 24 fills no power of two: kernels mask what they load of a head.
HEAD_DIMS = (16, 16, 16, 16, 24, 32, 64)
# Far below 0 a softmax that starts at 0 sums nothing (exp(-104) is 0 in float32); far above, exp overflows (at 89).
LOGIT_SHIFTS = (-200, 200)
# SGLang captures at some forty counts up to 1,024 tokens; no generated step has more than Limits.tokens_max.
PREFILL_GRAPH_MAX = 256

# SGLang's check of NGRAM looks at the name that stands for both halves, which here is prefill's.
NGRAM_ON_PAGES = ("flashinfer",)
# Halves that no supported release captures: the server does not start. Drawn seldom, for a release that will.
WITHOUT_GRAPHS = ("torch_native", "flex_attention")


def page_sizes_for(pair: str, page_sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Page sizes that both backends of ``pair`` take: per ``page_sizes``, else as is known of them, else any."""
    prefill, _, decode = pair.partition(":")
    ours, theirs = (page_sizes.get(name) or PAGE_SIZES_OF.get(name) for name in (prefill, decode))
    return tuple(size for size in ours or theirs or PAGE_SIZES if size in (theirs or ours or PAGE_SIZES))


# Without drafts, with drafts of one branch, with drafts of several. Of one branch are those of BLOCKS too, of several NGRAM's.
SHAPES = ("plain", "chain", "tree")


def modes_of(pair: str, speculative: Mapping[str, Mapping[str, int]] | None) -> Mapping[str, int]:
    """The speculative attention modes of ``pair`` and the most draft steps of each."""
    return dict.fromkeys(SPEC_MODES, SPEC_STEPS_MAX) if speculative is None else speculative.get(pair, {})


def draw_world(
    choices: Choices,
    pair: str,
    runner: str,
    device: str,
    page_sizes: Mapping[str, tuple[int, ...]],
    speculative: Mapping[str, Mapping[str, int]] | None = None,
    shapes: tuple[str, ...] = SHAPES,
) -> World:
    """A world for ``pair`` that passes ``World.check`` and whose pool holds one longest request at the least.

    ``speculative`` maps a pair to the modes it verifies in and each mode's most draft steps; None allows all.
    ``shapes`` are the kinds of world to draw from; a pair that verifies in no mode is always plain.
    """
    prefill, _, decode = pair.partition(":")
    sizes = page_sizes_for(pair, page_sizes)
    world = _draw_geometry(choices, World(prefill, decode, runner, device), sizes)
    modes = modes_of(pair, speculative)
    shape = choices.pick(shapes) if modes else "plain"
    if runner == "real":
        # Pinned: the tiny Llama of the real runner has no window and no cap on its logits.
        world = replace(world, sliding_window=0, logit_cap=0)
    else:
        world = _draw_layers(choices, world)
    if shape != "plain":
        world = _draw_speculative(choices, world, modes, is_tree=shape == "tree", single_slot_pages=1 in sizes)
    world = _draw_graph(choices, world)
    world = draw_kind(choices, replace(world, max_total_tokens=_draw_pool(choices, world)))
    return _draw_prefill_graph(choices, world)


def _draw_geometry(choices: Choices, world: World, sizes: tuple[int, ...]) -> World:
    """``world`` with heads, pages of one of ``sizes`` or now and then large, lengths, and what all layers have."""
    num_heads, num_kv_heads = choices.pick(HEADS)
    page_size = choices.pick(sizes)
    if sizes == PAGE_SIZES and choices.chance(1, 12):
        page_size = choices.pick(LARGE_PAGES)
    return replace(
        world,
        dtype=choices.pick(("float32",) * 6 + ("float16", "bfloat16")),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=choices.pick(HEAD_DIMS),
        num_layers=choices.pick((1, 1, 1, 2)),
        page_size=page_size,
        # A prompt, six tokens shorter than the context, is to pass one page boundary.
        context_len=choices.pick([size for size in CONTEXT_LENS if size >= page_size + 8] or [2 * page_size]),
        max_running_requests=choices.pick((4, 3, 2)),
        layout=choices.pick(LAYOUTS),
        overlap=0 if choices.chance(1, 5) else 1,
        sliding_window=_draw_window(choices, page_size) if choices.chance(1, 4) else 0,
        logit_cap=30 if choices.chance(1, 8) else 0,
    )


def _draw_layers(choices: Choices, world: World) -> World:
    """``world`` with layers as some models have them, and models that call them in some way of their own."""
    limited = bool(world.sliding_window or world.logit_cap)
    world = replace(
        world,
        alternate_layers=1 if limited and world.num_layers > 1 and choices.chance(2, 3) else 0,
        query_scalar=choices.pick((64, 9)) if choices.chance(1, 6) else 0,
        save_kv_cache=0 if choices.chance(1, 8) else 1,
        deterministic=1 if draws(choices, world, "deterministic", 8) else 0,
    )
    if not world.sliding_window and choices.chance(1, 20):
        return replace(world, xai_temperature_len=choices.pick((4, 2, 9)))
    # In narrow dtypes, and under a cap, logits that far off tell nothing.
    if world.dtype == "float32" and not world.logit_cap and choices.chance(1, 5):
        return replace(world, logit_shift=choices.pick(LOGIT_SHIFTS))
    return world


def _draw_window(choices: Choices, page_size: int) -> int:
    """A sliding window in tokens: around a page, or small."""
    return choices.pick([size for size in (page_size, page_size + 1, page_size - 1, 3, 5, 8) if size > 0])


def _draw_speculative(
    choices: Choices, world: World, modes: Mapping[str, int], *, is_tree: bool, single_slot_pages: bool
) -> World:
    """``world`` with drafts. Most trees get page size 1, where that may be: few backends serve them on larger pages."""
    mode = choices.pick(tuple(modes))
    drafting = replace(world, spec_mode=mode)
    # Of a half that verifies no tree of EAGLE's, NGRAM's are what there is.
    others = 9 if is_tree and not serves(drafting, "tree") else 2 if is_tree else 3
    if world.runner != "real" and choices.chance(others, 10):
        world = drafting
        return (
            _with_ngram(choices, world, single_slot_pages=single_slot_pages) if is_tree else _with_block(choices, world)
        )
    steps = choices.integer(1, modes[mode])
    topk = choices.pick((2, 3)) if is_tree else 1
    draft_tokens = steps + 1
    if topk > 1:
        # The tree's root and candidates (World.check has the formula); 8 rows are enough to branch twice.
        draft_tokens = choices.integer(2, min(1 + topk + (steps - 1) * topk * topk, 8))
        # Each branch reserves pages of its own: a tree over large ones would ask for thousands of slots.
        if single_slot_pages:
            world = replace(world, page_size=min(world.page_size, PAGE_SIZES[-1]))
        if world.page_size > 1 and single_slot_pages:
            world = replace(world, page_size=choices.pick((1, 1, 2, world.page_size)))
    return replace(
        world,
        # SGLang defines neither over a tree: its kernels count rows of the mask, not depths. Pinned to none.
        sliding_window=world.sliding_window if topk == 1 else 0,
        xai_temperature_len=world.xai_temperature_len if topk == 1 else 0,
        spec_algorithm="EAGLE",
        spec_mode=mode,
        spec_steps=steps,
        spec_topk=topk,
        spec_draft_tokens=draft_tokens,
    )


def _with_ngram(choices: Choices, world: World, *, single_slot_pages: bool) -> World:
    """``world`` with drafts of a corpus: trees whatever the breadth, and no window, as over every tree."""
    breadth = choices.pick((1, 2, 3))
    if breadth > 1 and world.prefill not in NGRAM_ON_PAGES and world.page_size > 1:
        if single_slot_pages:
            world = replace(world, page_size=1)
        else:
            breadth = 1
    width = choices.integer(max(2, breadth), 8)
    return replace(
        world,
        sliding_window=0,
        xai_temperature_len=0,
        spec_algorithm="NGRAM",
        spec_steps=width // breadth,
        spec_topk=breadth,
        spec_draft_tokens=width,
    )


def _with_block(choices: Choices, world: World) -> World:
    """``world`` with drafts of a block, each a chain, of which all is verified, or of each request so many tokens."""
    width, algorithm = choices.integer(2, 8), choices.pick(BLOCKS)
    return replace(world, spec_algorithm=algorithm, spec_steps=1, spec_topk=1, spec_draft_tokens=width)


def _draw_graph(choices: Choices, world: World) -> World:
    """``world`` that captures graphs or not, at batch sizes so far apart and so large."""
    # Pinned: SGLang's own runner captures on a GPU alone, and a window pool's write locations are its runner's affair.
    # What a graph replays writes its own KV.
    if world.runner == "real" or world.device != "cpu" or world.window_tokens or not world.save_kv_cache:
        return world
    if not choices.chance(1, 3 if captures(world) else 12):
        return world
    most = choices.integer(1, world.max_running_requests) if choices.chance(1, 3) else 0
    return replace(world, graph=choices.integer(1, most or world.max_running_requests), graph_max=most)


def _draw_prefill_graph(choices: Choices, world: World) -> World:
    """``world`` whose extends are captured or not, at counts of tokens up to what one or more requests may have."""
    is_plain = not (world.wrapper or world.kv_lora_rank or world.encoder_decoder)
    fits = plans_prefill(world) and world.spec_algorithm in ("", "NGRAM") and is_plain
    # Pinned: see fuzz.axes.
    if not fits or world.runner == "real" or world.device != "cpu" or not world.save_kv_cache:
        return world
    if not choices.chance(1, 2):
        return world
    context = world.context_len
    tokens = choices.pick((2 * context, world.max_running_requests * context, context, 16))
    return replace(world, prefill_graph=min(tokens, PREFILL_GRAPH_MAX))


def captures(world: World) -> bool:
    """Whether the backends of which graphs are captured are known for none that any release refuses to capture."""
    names = (world.decode, world.prefill) if world.spec_mode == "prefill" and world.is_speculative else (world.decode,)
    return world.runner == "fake" and world.device == "cpu" and not any(name in WITHOUT_GRAPHS for name in names)


def _draw_pool(choices: Choices, world: World) -> int:
    """Pool size in tokens: the default where roomy, or just above one longest request."""
    page = world.page_size
    request = -(-(world.context_len + 2 * world.spec_reserve) // page) * page
    roomy = max(512 // page * page, (world.max_running_requests + 1) * request)
    # Retracting and refusing need a pool that a second request can fill.
    return request + request // (2 * page) * page if choices.chance(1, 4) else roomy
