"""Stand-ins for sgl_kernel's EAGLE tree operators: refuse a call outside the contract, then build or walk the tree.

Argument names, order and in-place outputs are those of SGLang 0.5.11 to 0.5.23. The contract and the meaning are read
from the CUDA source that the 0.5.23 wheel carries (csrc/speculative/tree.cuh and eagle.cuh); the compiled operators of
earlier releases check less, and do the same.

The tree: node 0 is the verified token; node i is the candidate ``selected_index[i - 1]``. A candidate c of the draft
hangs under the root where c // topk is 0, else under the candidate ``parent_list[c // topk]``, which must be selected too.
"""

from __future__ import annotations

from itertools import accumulate

import torch

from stubs.kernels.contract import ContractBreach, require
from stubs.kernels.door import closed_kernel
from stubs.kernels.tree_contract import DRAFT_TOKENS_MAX, check_long

BUILD = "build_tree_kernel_efficient"
VERIFY = "verify_tree_greedy"

FULL_MASK, QLEN_ONLY, QLEN_ONLY_BITPACKING = range(3)  # SGLang's TreeMaskMode
PACKED_DRAFT_TOKENS_MAX = 32  # a packed row is at most four bytes


@closed_kernel
def build_tree_kernel_efficient(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Write the tree of each request into the five buffers from ``tree_mask`` on.

    With B requests and N = ``draft_token_num``, int64 unless said otherwise: ``parent_list`` [B, topk*(depth-1)+1],
    ``selected_index`` [B, N-1], ``verified_seq_len`` [B] tokens before the tree, ``positions`` [B*N], the three
    ``retrive_`` arrays [B, N], the two ``next`` ones holding -1 on entry. ``tree_mask`` is flat: N*(length+N) cells of
    a byte a request (FULL_MASK; only the last N columns are written), N*N (QLEN_ONLY) or N packed rows of bits.
    Raises ContractBreach.
    """
    batch, nodes = verified_seq_len.shape[0], int(draft_token_num)
    require(topk > 0, BUILD, "topk", f"is {topk}")
    require(depth > 0, BUILD, "depth", f"is {depth}")
    require(0 < nodes <= DRAFT_TOKENS_MAX, BUILD, "draft_token_num", f"is {nodes}, expected 1..{DRAFT_TOKENS_MAX}")
    check_long(BUILD, "verified_seq_len", verified_seq_len, (batch,))
    check_long(BUILD, "selected_index", selected_index, (batch, nodes - 1))
    _check_parents(parent_list, batch, int(topk), int(depth))
    check_long(BUILD, "positions", positions, (batch * nodes,))
    check_long(BUILD, "retrive_index", retrive_index, (batch, nodes))
    for name, tensor in (("retrive_next_token", retrive_next_token), ("retrive_next_sibling", retrive_next_sibling)):
        check_long(BUILD, name, tensor, (batch, nodes))
        require(bool((tensor == -1).all()), BUILD, name, "does not hold -1 everywhere on entry")
    lengths: list[int] = verified_seq_len.tolist()
    for request, length in enumerate(lengths):
        require(length >= 0, BUILD, "verified_seq_len", f"is {length}", request)
    cells = _check_mask(tree_mask, lengths, nodes, int(tree_mask_mode))

    parents = [
        _parents(selected, given, int(topk), request)
        for request, (selected, given) in enumerate(zip(selected_index.tolist(), parent_list.tolist(), strict=True))
    ]
    offsets = list(accumulate((nodes * (length + nodes) for length in lengths), initial=0))
    for request, (length, parent) in enumerate(zip(lengths, parents, strict=True)):
        paths = _paths(parent)
        first = request * nodes
        positions[first : first + nodes] = torch.tensor([length + len(path) - 1 for path in paths])
        retrive_index[request] = torch.arange(first, first + nodes)
        _link(parent, retrive_next_token[request], retrive_next_sibling[request])
        if tree_mask_mode == QLEN_ONLY_BITPACKING:
            _write_bits(cells, first, paths)
        elif tree_mask_mode == QLEN_ONLY:
            _square(cells, first * nodes, nodes, nodes)[:] = _ancestry(paths)
        else:
            _square(cells, offsets[request] + length, nodes, length + nodes)[:] = _ancestry(paths)


@closed_kernel
def verify_tree_greedy(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Walk each tree along the target's own choices; write what was accepted.

    int64 [B, N]: ``candidates``, the ``retrive_`` arrays, ``target_predict``. int32, written in place: ``predicts``
    [B*N or more], ``accept_index`` [B, S], ``accept_token_num`` [B], the root not counted. Raises ContractBreach.
    """
    batch, nodes = candidates.shape
    inputs = {
        "candidates": candidates,
        "retrive_index": retrive_index,
        "retrive_next_token": retrive_next_token,
        "retrive_next_sibling": retrive_next_sibling,
        "target_predict": target_predict,
    }
    for name, tensor in inputs.items():
        check_long(VERIFY, name, tensor, (batch, nodes))
    _check_accepted(predicts, accept_index, accept_token_num, batch, nodes)
    _check_range("retrive_index", retrive_index, 0, batch * nodes)
    _check_range("retrive_next_token", retrive_next_token, -1, nodes)
    _check_range("retrive_next_sibling", retrive_next_sibling, -1, nodes)

    target: list[int] = target_predict.flatten().tolist()
    places, firsts, siblings = retrive_index.tolist(), retrive_next_token.tolist(), retrive_next_sibling.tolist()
    most = accept_index.shape[1]
    for request, tokens in enumerate(candidates.tolist()):
        accepted = _accepted(tokens, places[request], firsts[request], siblings[request], target, most, request)
        accept_index[request, : len(accepted)] = torch.tensor(accepted, dtype=torch.int32)
        accept_token_num[request] = len(accepted) - 1
        for place in accepted:
            predicts[place] = target[place]


def _check_accepted(
    predicts: torch.Tensor, accept_index: torch.Tensor, accept_token_num: torch.Tensor, batch: int, nodes: int
) -> None:
    """What the answer goes to has room for it."""
    given = {"predicts": predicts, "accept_index": accept_index, "accept_token_num": accept_token_num}
    for name, tensor in given.items():
        require(tensor.dtype == torch.int32, VERIFY, name, f"is {tensor.dtype}, expected torch.int32", rule="dtype")
        require(
            tensor.is_contiguous(), VERIFY, name, f"has strides {tensor.stride()}, expected contiguous", rule="stride"
        )
    size = predicts.numel()
    require(size >= batch * nodes, VERIFY, "predicts", f"has {size} cells, expected {batch * nodes}")
    shape = tuple(accept_index.shape)
    require(
        len(shape) == 2 and shape[0] == batch and shape[1] > 0,
        VERIFY,
        "accept_index",
        f"{shape} for {batch} rows",
        rule="shape",
    )
    require(
        accept_token_num.shape == (batch,), VERIFY, "accept_token_num", f"{tuple(accept_token_num.shape)}", rule="shape"
    )


def _accepted(
    tokens: list[int],
    places: list[int],
    firsts: list[int],
    siblings: list[int],
    target: list[int],
    most: int,
    request: int,
) -> list[int]:
    """Flat places of the accepted nodes, the root first, at most ``most``."""
    node, accepted = 0, [places[0]]
    while len(accepted) < most:
        wanted, child, seen = target[accepted[-1]], firsts[node], 0
        while child != -1 and tokens[child] != wanted:
            child, seen = siblings[child], seen + 1
            if seen > len(tokens):
                raise ContractBreach(VERIFY, "retrive_next_sibling", "links in a ring", request)
        if child == -1:
            break
        accepted.append(places[child])
        node = child
    return accepted


def _parents(selected: list[int], parent_list: list[int], topk: int, request: int) -> list[int]:
    """The parent node of each node but the root."""
    node_of: dict[int, int] = {}
    for node, candidate in enumerate(selected, start=1):
        node_of.setdefault(candidate, node)  # the kernel's search stops at the first
    parents = []
    for node, candidate in enumerate(selected, start=1):
        group = candidate // topk
        if candidate < 0 or (group > 0 and group >= len(parent_list)):
            detail = f"candidate {candidate} of node {node} with topk {topk} lies outside {len(parent_list)} parents"
            raise ContractBreach(BUILD, "selected_index", detail, request)
        parent = 0 if group == 0 else node_of.get(parent_list[group])
        if parent is None:
            detail = f"node {node} hangs under candidate {parent_list[group]}, which is not selected: {selected}"
            raise ContractBreach(BUILD, "selected_index", detail, request, rule="parent")
        parents.append(parent)
    return parents


def _paths(parents: list[int]) -> list[list[int]]:
    """For each node, the nodes from it up to the root, both included."""
    paths = [[0]]
    for node in range(1, len(parents) + 1):
        path = [node]
        while path[-1] != 0:
            path.append(parents[path[-1] - 1])
            if len(path) > len(parents) + 1:
                raise ContractBreach(BUILD, "parent_list", f"nodes hang under each other in a ring: {parents}")
        paths.append(path)
    return paths


def _link(parents: list[int], next_token: torch.Tensor, next_sibling: torch.Tensor) -> None:
    """First child and next sibling of each node, children in rising order, -1 where there is none."""
    first, sibling = [-1] * (len(parents) + 1), [-1] * (len(parents) + 1)
    for node in range(len(parents), 0, -1):
        parent = parents[node - 1]
        first[parent], sibling[node] = node, first[parent]
    next_token[:] = torch.tensor(first)
    next_sibling[:] = torch.tensor(sibling)


def _ancestry(paths: list[list[int]]) -> torch.Tensor:
    """uint8 [N, N]: 1 where the column's node is the row's node or above it."""
    square = torch.zeros(len(paths), len(paths), dtype=torch.uint8)
    for node, path in enumerate(paths):
        square[node, path] = 1
    return square


def _square(cells: torch.Tensor, start: int, nodes: int, row: int) -> torch.Tensor:
    """The [N, N] view of flat ``cells`` from ``start`` on, rows ``row`` apart."""
    return cells.as_strided((nodes, nodes), (row, 1), cells.storage_offset() + start)


def _write_bits(cells: torch.Tensor, first: int, paths: list[list[int]]) -> None:
    """Bit n of row r, little endian, says that node n is r or above it."""
    size = _packed_bytes(len(paths))
    for row, path in enumerate(paths, start=first):
        bits = sum(1 << node for node in path)
        cells[row * size : (row + 1) * size] |= torch.tensor(list(bits.to_bytes(size, "little")), dtype=torch.uint8)


def _packed_bytes(nodes: int) -> int:
    return 4 if nodes > 16 else 2 if nodes > 8 else 1


def _check_parents(parent_list: torch.Tensor, batch: int, topk: int, depth: int) -> None:
    """With one step there is no parent to read, and SGLang passes an empty tensor (of floats, up to 0.5.15)."""
    shape = tuple(parent_list.shape)
    require(
        len(shape) == 2 and shape[0] == batch, BUILD, "parent_list", f"{shape}, expected {batch} rows", rule="shape"
    )
    if depth > 1 or parent_list.numel():
        width = topk * (depth - 1) + 1 if depth > 1 else shape[1]
        check_long(BUILD, "parent_list", parent_list, (batch, width))


def _check_mask(tree_mask: torch.Tensor, lengths: list[int], nodes: int, mode: int) -> torch.Tensor:
    """The mask's bytes as uint8; as many as the mode writes, or more (a graph's buffer serves its largest batch)."""
    require(mode in (FULL_MASK, QLEN_ONLY, QLEN_ONLY_BITPACKING), BUILD, "tree_mask_mode", f"is {mode}, expected 0..2")
    shape = tuple(tree_mask.shape)
    flat = tree_mask.dim() == 1 and tree_mask.is_contiguous()
    require(
        flat,
        BUILD,
        "tree_mask",
        f"{shape} with strides {tree_mask.stride()}, expected flat and contiguous",
        rule="stride",
    )
    cells = tree_mask.view(torch.uint8)
    if mode == FULL_MASK:
        needed, what = sum(nodes * (length + nodes) for length in lengths), f"{nodes} * sum(length + {nodes})"
    elif mode == QLEN_ONLY:
        needed, what = len(lengths) * nodes * nodes, f"{len(lengths)} * {nodes} * {nodes}"
    else:
        require(
            nodes <= PACKED_DRAFT_TOKENS_MAX,
            BUILD,
            "draft_token_num",
            f"is {nodes}, a packed row has 32 bits",
            rule="packed",
        )
        size = _packed_bytes(nodes)
        needed, what = len(lengths) * nodes * size, f"{len(lengths)} * {nodes} rows of {size}"
    if cells.numel() < needed:
        detail = f"has {cells.numel()} bytes, expected {what} = {needed} for lengths {lengths}"
        raise ContractBreach(BUILD, "tree_mask", detail)
    return cells


def _check_range(name: str, tensor: torch.Tensor, low: int, high: int) -> None:
    bad = (tensor < low) | (tensor >= high)
    if bool(bad.any()):
        request, node = (int(value) for value in bad.nonzero()[0])
        detail = f"{int(tensor[request, node])} at node {node}, expected {low}..{high - 1}"
        raise ContractBreach(VERIFY, name, detail, request)
