"""Stand-in for sgl_kernel's reading of an n-gram draft's mask: refuse a call outside the contract, then read the tree.

The contract and the meaning are read from the CUDA source that the 0.5.23 wheel carries (csrc/speculative/tree.cuh and
ngram.cuh); the compiled operator of earlier releases checks less, and does the same.
"""

from __future__ import annotations

import torch

from stubs.kernels.contract import require
from stubs.kernels.door import closed_kernel
from stubs.kernels.tree_contract import DRAFT_TOKENS_MAX, check_long

READ = "reconstruct_indices_from_tree_mask"


@closed_kernel
def reconstruct_indices_from_tree_mask(
    tree_mask: torch.Tensor,
    verified_seq_len: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Write depth and links of each node into the four tensors from ``positions`` on.

    With B = ``batch_size`` and N = ``draft_token_num``: ``tree_mask`` flat, a byte a cell, B*N*N cells or more, 1 where
    the column's node is above the row's or is it; int64 ``verified_seq_len`` [B], ``positions`` [B*N], the others [B, N].
    Raises ContractBreach.
    """
    batch, nodes = int(batch_size), int(draft_token_num)
    require(0 < nodes <= DRAFT_TOKENS_MAX, READ, "draft_token_num", f"is {nodes}, expected 1..{DRAFT_TOKENS_MAX}")
    require(
        tree_mask.element_size() == 1, READ, "tree_mask", f"is {tree_mask.dtype}, expected a byte a cell", rule="dtype"
    )
    require(tree_mask.dim() == 1, READ, "tree_mask", f"has {tree_mask.dim()} dimensions, expected 1", rule="shape")
    require(
        tree_mask.is_contiguous(),
        READ,
        "tree_mask",
        f"has strides {tree_mask.stride()}, expected contiguous",
        rule="stride",
    )
    cells = tree_mask.numel()
    require(cells >= batch * nodes * nodes, READ, "tree_mask", f"has {cells} cells, expected {batch * nodes * nodes}")
    check_long(READ, "verified_seq_len", verified_seq_len, (batch,))
    check_long(READ, "positions", positions, (batch * nodes,))
    for name, tensor in (
        ("retrive_index", retrive_index),
        ("retrive_next_token", retrive_next_token),
        ("retrive_next_sibling", retrive_next_sibling),
    ):
        check_long(READ, name, tensor, (batch, nodes))

    squares = tree_mask[: batch * nodes * nodes].view(batch, nodes, nodes).bool().tril(diagonal=-1).cpu()
    lengths: list[int] = verified_seq_len.tolist()
    for request, (above, length) in enumerate(zip(squares, lengths, strict=True)):
        first, sibling = _links(above.tolist())
        begin = request * nodes
        positions[begin : begin + nodes] = length + above.sum(dim=1).to(positions.device)
        retrive_index[request] = torch.arange(begin, begin + nodes)
        retrive_next_token[request] = torch.tensor(first)
        retrive_next_sibling[request] = torch.tensor(sibling)


def _links(above: list[list[bool]]) -> tuple[list[int], list[int]]:
    """First child and next sibling of each node, -1 where there is none; ``above[i][j]``: node j < i is above node i.

    A node's parent is the last that is above it. Its first child is the first node that it is above of, child or not.
    """
    nodes = range(len(above))
    parents = [max((other for other in nodes if above[node][other]), default=-1) for node in nodes]
    first = [next((node for node in nodes if above[node][parent]), -1) for parent in nodes]
    sibling = [
        next((other for other in nodes[node + 1 :] if parents[node] >= 0 and parents[other] == parents[node]), -1)
        for node in nodes
    ]
    return first, sibling
