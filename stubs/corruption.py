"""The corruptions of a step's inputs: what each does, to which steps, and whether a right answer is left; plain data.

``COMPARABLE``: the input means what it meant, in another form, and the same answer must come out (or a refusal).
``REFUSED``: it contradicts itself or points outside, and SGLang must raise, or be seen not to depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPARABLE, REFUSED = "comparable", "refused"
# Kinds of op whose first step takes the corruption.
EVERY = ("extend", "mixed", "decode", "verify")
EXTENDS = ("extend", "mixed")
DECODES = ("decode",)
VERIFIES = ("verify",)


@dataclass(frozen=True, slots=True)
class Corruption:
    """``what`` says in a few words what is wrong with the input; ``ops`` are the kinds of op it is for."""

    name: str
    what: str
    expected: str
    ops: tuple[str, ...] = EVERY


_ALL = (
    # Lengths
    Corruption("length_too_long", "the last request's length counts 2 tokens that it has no KV for", REFUSED),
    Corruption("length_one_short", "the last request's length leaves its newest token out", REFUSED),
    Corruption("length_past_row", "the last request's length is more than a row of req_to_token holds", REFUSED),
    Corruption("length_zero", "the last request's length is 0", REFUSED),
    Corruption("length_negative", "the last request's length is -1", REFUSED),
    Corruption("lengths_int32", "seq_lens are int32, not int64", COMPARABLE),
    Corruption("lengths_float", "seq_lens are float32, not int64", REFUSED),
    Corruption("lengths_strided", "seq_lens lie two elements apart", COMPARABLE),
    Corruption("lengths_missing_one", "seq_lens lack the last request", REFUSED),
    Corruption("host_lengths_longer", "seq_lens_cpu say 2 tokens more than seq_lens", REFUSED),
    Corruption("host_lengths_shorter", "seq_lens_cpu say a token less than seq_lens", REFUSED),
    Corruption("sum_too_small", "seq_lens_sum is one less than the sum of seq_lens", REFUSED),
    Corruption("sum_too_large", "seq_lens_sum is 5 more than the sum of seq_lens", REFUSED),
    # Rows of req_to_token, and what stands in them
    Corruption("row_past_table", "the last request's row is one behind the end of req_to_token", REFUSED),
    Corruption("row_negative", "the last request's row is -1", REFUSED),
    Corruption("row_duplicated", "the last request is given the first one's row", REFUSED),
    Corruption("rows_int32", "req_pool_indices are int32, not int64", COMPARABLE),
    Corruption("rows_strided", "req_pool_indices lie two elements apart", COMPARABLE),
    Corruption("slot_past_pool", "the last request's first entry in req_to_token lies behind the pool", REFUSED),
    Corruption("slot_negative", "the last request's first entry in req_to_token is -1", REFUSED),
    # Where new KV goes
    Corruption("location_past_pool", "the last of out_cache_loc lies behind the pool", REFUSED),
    Corruption("locations_short", "out_cache_loc lacks its last element", REFUSED),
    Corruption("locations_duplicated", "the last of out_cache_loc is the first once more", REFUSED),
    Corruption("locations_int32", "out_cache_loc is int32, not int64", COMPARABLE),
    Corruption("locations_strided", "out_cache_loc lies two elements apart", COMPARABLE),
    # What extends say of themselves
    Corruption("prefix_negative", "the last request's extend_prefix_lens are -1", REFUSED, EXTENDS),
    Corruption("prefix_too_long", "the last request's extend_prefix_lens count a token too many", REFUSED, EXTENDS),
    Corruption("extend_row_empty", "the last request's extend_seq_lens are 0, though it has tokens", REFUSED, EXTENDS),
    Corruption("start_shifted", "the last request's extend_start_loc is one too high", REFUSED, EXTENDS),
    Corruption("tokens_miscounted", "extend_num_tokens is one too high", REFUSED, EXTENDS),
    Corruption("prefixes_int64", "extend_prefix_lens and extend_seq_lens are int64, not int32", COMPARABLE, EXTENDS),
    Corruption("batch_size_too_large", "batch_size is one too high", REFUSED),
    Corruption("positions_shuffled", "positions are in reverse order, which attention has no use for", COMPARABLE),
    # What the model hands over
    Corruption("q_strided", "q's rows lie twice as far apart as they are long", COMPARABLE),
    Corruption("kv_strided", "k's and v's rows lie twice as far apart as they are long", COMPARABLE),
    Corruption("q_wider", "q has the same values in a wider dtype than the KV", COMPARABLE),
    Corruption("q_lacks_a_head", "q has a head too few", REFUSED),
    Corruption("q_one_row_short", "q lacks its last row", REFUSED),
    Corruption("kv_one_row_short", "k and v lack their last row", REFUSED),
    # Drafts
    Corruption("mask_short", "the custom mask lacks the last request's last row", REFUSED, VERIFIES),
    Corruption("mask_missing", "there is no custom mask", REFUSED, VERIFIES),
    Corruption("mask_int32", "the custom mask is int32, not bool", COMPARABLE, VERIFIES),
    Corruption("draft_width_wrong", "draft_token_num is one too high", REFUSED, VERIFIES),
)
CORRUPTIONS = {corruption.name: corruption for corruption in _ALL}


def corruptions_of(op_kind: str) -> tuple[str, ...]:
    """Names of those for the first step of such an op, in their order."""
    return tuple(one.name for one in _ALL if op_kind in one.ops)
