"""A captured graph on a machine without CUDA: a forward is recorded once, and repeated without any of its Python.

As in a CUDA graph a node holds the very tensors and numbers it saw: an int computed at capture stays as it was, and a
buffer that is replaced by another, instead of filled anew, is not seen. Nodes are torch's operations, launches of Triton
kernels and calls of closed kernels. Views and allocations are none; memory that the capture allocated holds again, at
each replay, what nobody wrote, since a graph's pool of memory promises nothing. What the body computes from tensors that
are the host's own is done at capture alone. Not modelled: streams, and memory that two nodes share one after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from traceback import FrameSummary
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stubs.interpreter import from_graph, interpreter_module
from stubs.kernels.door import heard_by, replaying

# Operations whose result, or its shape, the host has to wait for: no stream that is being captured allows them.
_WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::unique_consecutive")
# The same, of which torch's dispatcher hears nothing where the tensor is in host memory.
_READS = (torch.Tensor.tolist, torch.Tensor.cpu, torch.Tensor.numpy)
_FRAMES_MAX = 40


@dataclass(frozen=True, slots=True)
class HostRead:
    """The host read a tensor while a graph was captured: ``operation`` names how, ``stack`` is where, outermost first."""

    operation: str
    stack: tuple[FrameSummary, ...]


class ReplayError(RuntimeError):
    """A node failed at replay; the cause is chained. ``stack`` is where the node was captured, outermost first."""

    def __init__(self, operation: str, stack: tuple[FrameSummary, ...], cause: Exception) -> None:
        super().__init__(f"{operation} fails when the graph is replayed: {cause}")
        self.operation = operation
        self.stack = stack


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    operation: str
    run: Callable[[], Any]
    results: tuple[torch.Tensor, ...]
    stack: tuple[FrameSummary, ...] = ()  # of torch's operations: kernels tell their place themselves


@dataclass(slots=True)
class Graph:
    """What one capture recorded. ``host`` are tensors that are the host's also where the device is another."""

    host: Sequence[torch.Tensor] = ()
    host_reads: list[HostRead] = field(default_factory=list)
    nodes: list[_Node] = field(default_factory=list)
    _hidden: int = 0  # depth of kernels under way: what they are made of is none of the graph's business
    _host_memory: dict[int, torch.Tensor] = field(default_factory=dict)  # by address; held, so that it stays theirs

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Record what is done within."""
        self._host_memory = {_memory(tensor): tensor for tensor in self.host}
        executor: Any = interpreter_module().GridExecutor
        launch = executor.__call__
        executor.__call__ = self._launch(launch)
        try:
            with ExitStack() as stack:
                stack.enter_context(heard_by(self))
                stack.enter_context(_Reads(self))
                stack.enter_context(_Operations(self))
                yield
        finally:
            executor.__call__ = launch

    def replay(self) -> None:
        """Repeat the nodes in order. Raises ReplayError where an operation of torch fails."""
        with from_graph(), replaying():
            for node in self.nodes:
                self._repeat(node)

    def _repeat(self, node: _Node) -> None:
        try:
            news = _tensors(node.run())
        except (RuntimeError, IndexError, ValueError) as error:
            if not node.stack:
                raise
            raise ReplayError(node.operation, node.stack, error) from error
        for old, new in zip(node.results, news, strict=True):
            if old is not new and old.data_ptr() != new.data_ptr():
                old.copy_(new)

    # --- what a capture hears of -----------------------------------------------------------------------------

    def call(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A closed kernel's stand-in is called."""
        result = self._hide(lambda: function(*args, **kwargs))
        if not self._hidden:
            self.nodes.append(_Node(name, lambda: function(*args, **kwargs), tuple(_tensors(result))))
        return result

    def operation(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operation of torch is dispatched."""
        result = function(*args, **kwargs)
        name = function._schema.name
        if self._hidden or function.is_view or name.startswith("aten::empty"):
            return result
        inputs, outputs = _tensors((args, kwargs)), tuple(_tensors(result))
        if inputs and all(_memory(tensor) in self._host_memory for tensor in inputs):
            self._host_memory.update((_memory(tensor), tensor) for tensor in outputs)
            return result
        if name in _WAITS or _picks_by_mask(name, args):
            self.host_reads.append(HostRead(name, _stack()))
            return result
        self.nodes.append(_Node(name, lambda: function(*args, **kwargs), outputs, _stack()))
        return result

    def read(self, function: Any, args: tuple[Any, ...]) -> None:
        """The host is about to read a tensor by one of its methods."""
        if not self._hidden and _memory(args[0]) not in self._host_memory:
            self.host_reads.append(HostRead(f"Tensor.{function.__name__}", _stack()))

    def _launch(self, launch: Callable[..., None]) -> Callable[..., None]:
        """GridExecutor.__call__ that records. A replay goes the way that launches go then, checked or not."""

        def traced(executor: Any, *args: Any, **kwargs: Any) -> None:
            if callable(executor.grid):
                executor.grid = _Once(executor.grid)  # a graph's launch has the grid that it was captured with
            self._hide(lambda: launch(executor, *args, **kwargs))
            if not self._hidden:
                again = interpreter_module().GridExecutor
                self.nodes.append(_Node(executor.fn.__name__, lambda: again.__call__(executor, *args, **kwargs), ()))

        return traced

    def _hide(self, run: Callable[[], Any]) -> Any:
        self._hidden += 1
        try:
            return run()
        finally:
            self._hidden -= 1


class _Once:
    """A grid computed at capture."""

    def __init__(self, grid: Callable[[Any], tuple[int, ...]]) -> None:
        self._grid = grid
        self._value: tuple[int, ...] | None = None

    def __call__(self, arguments: Any) -> tuple[int, ...]:
        if self._value is None:
            self._value = self._grid(arguments)
        return self._value


class _Operations(TorchDispatchMode):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.graph.operation(func, args, kwargs or {})


class _Reads(TorchFunctionMode):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS:
            self.graph.read(func, args)
        return func(*args, **(kwargs or {}))


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _picks_by_mask(name: str, args: tuple[Any, ...]) -> bool:
    """Whether elements are picked by truth values, as many as are true."""
    if name not in ("aten::index", "aten::index_put", "aten::index_put_"):
        return False
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])


def _stack() -> tuple[FrameSummary, ...]:
    """Frames of the call under way, outermost first, without reading any source."""
    frames: list[FrameSummary] = []
    frame: Any = sys._getframe(2)
    while frame is not None and len(frames) < _FRAMES_MAX:
        code = frame.f_code
        frames.append(FrameSummary(code.co_filename, frame.f_lineno, code.co_name, lookup_line=False))
        frame = frame.f_back
    return tuple(reversed(frames))
