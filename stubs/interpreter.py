"""Triton's CPU interpreter, several times faster and with equal results: what interpreted campaigns run on.

Where stock's time goes, and what is done about each: the language is patched again at every launch and every call of
a device function (here once); integer arithmetic is repeated in int64 for an overflow check whose assert is dropped
(here not computed); every operation repeats its type checks, casts and broadcasts (see interpreter_replay); a launch
copies whole storages onto themselves and inspects the kernel's signature (here neither, for CPU tensors).
Triton 3.6 to 3.9 differ in what is replaced only by details that are asked of them at run time.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import product
from types import FunctionType, ModuleType
from typing import Any, Protocol

import numpy as np

from stubs.interpreter_bounds import Checker
from stubs.interpreter_log import Batch, Log, SlotPolicy
from stubs.interpreter_replay import Replayer


def interpreter_module() -> ModuleType:
    """triton.runtime.interpreter; Triton must have been told to interpret before its first import."""
    return import_module("triton.runtime.interpreter")


class Listener(Protocol):
    """Told of each launch whose arguments are in host memory, before they are converted and after its last program."""

    def launched(self, kernel: str, arguments: dict[str, Any]) -> None: ...

    def finished(self) -> None: ...


@dataclasses.dataclass(slots=True)
class _Process:
    """What this process's one patched language needs to know; there is one, as there is one triton.language."""

    replayer: Replayer | None = None  # kept when the patches are taken back: its replays stay true
    undo: Callable[[], None] | None = None  # set while the interpreter is fast
    listener: Listener | None = None
    watcher: Callable[[str, dict[str, Any]], None] | None = None


_PROCESS = _Process()


def watch(launched: Callable[[str, dict[str, Any]], None]) -> None:
    """From now on ``launched`` is told of each launch, as a Listener is; for who wants to know what runs, not how."""
    _PROCESS.watcher = launched


@contextmanager
def fast() -> Iterator[None]:
    """Within, kernels run in the fast interpreter; nothing to do if they do already. One thread only."""
    if _PROCESS.undo is not None:
        yield
        return
    undo = install()
    try:
        yield
    finally:
        undo()


@contextmanager
def checked(
    policies: Sequence[SlotPolicy] = (), reachable: Sequence[Any] = (), batch: Batch | None = None
) -> Iterator[Log]:
    """As `fast`, and every access of a kernel is checked; what was wrong stands in the log's ``violations``.

    ``policies`` say which rows of a KV buffer may be read and written, and ``batch`` for how many requests programs
    work. ``reachable`` are tensors whose addresses kernels find in tables instead of in their arguments. Reads of what
    nobody wrote are seen where `stubs.uninitialised` is installed. Cheap to enter after `install`. Not for nesting.
    """
    assert _PROCESS.listener is None, "checked() within checked()"
    with fast():
        checker = Checker(interpreter_module(), policies, reachable, batch)
        checker.attach()
        _PROCESS.listener = checker
        try:
            yield checker.log
        finally:
            _PROCESS.listener = None
            checker.detach()


@contextmanager
def from_graph() -> Iterator[None]:
    """Within, launches are a graph's: of a tensor it holds the address, and how far a view reached at capture binds none."""
    listener = _PROCESS.listener
    if not isinstance(listener, Checker):
        yield
        return
    listener.views_bind = False
    try:
        yield
    finally:
        listener.views_bind = True


def install() -> Callable[[], None]:
    """Make the interpreter fast from here on; the returned function takes it back."""
    assert _PROCESS.undo is None, "the interpreter is fast already"
    module: Any = interpreter_module()
    builder, semantic = module.interpreter_builder, module.interpreter_semantic
    function, executor = module.InterpretedFunction, module.GridExecutor
    stock = (function.__call__, executor.__init__, executor.__call__, builder.options)
    names = (module._get_np_dtype, module._implicit_cvt)

    module._get_np_dtype = _by_name(module._get_np_dtype)
    module._implicit_cvt = _convert(module, module._implicit_cvt)
    scope = _patch_language(module)
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    function.__call__ = _device_call(module)
    executor.__init__ = _executor_init(executor.__init__)
    executor.__call__ = _launch(module, executor.__call__)
    semantic.to_tensor = _to_tensor(semantic.to_tensor, module.tl.tensor)

    def undo() -> None:
        function.__call__, executor.__init__, executor.__call__, builder.options = stock
        module._get_np_dtype, module._implicit_cvt = names
        del semantic.to_tensor
        scope.restore()
        _PROCESS.undo = None

    _PROCESS.undo = undo
    return undo


def _patch_language(module: Any) -> Any:
    """Patch triton.language as stock would for a kernel that sees all of it, builtins wrapped for replay."""
    if _PROCESS.replayer is None:
        _PROCESS.replayer = Replayer(module)
    replayer = _PROCESS.replayer

    def patch_attribute(obj: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        scope.set_attr(obj, name, replayer.wrap(member))

    def empty() -> None: ...

    sees_all = FunctionType(empty.__code__, {"tl": module.tl, "core": module.tl.core})
    stock = module._patch_attr
    module._patch_attr = patch_attribute
    try:
        return module._patch_lang(sees_all)
    finally:
        module._patch_attr = stock


def _by_name(stock: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """_get_np_dtype, which builds its table anew at each call, remembered by the name of the type."""
    known: dict[str, Any] = {}

    def get_numpy_dtype(dtype: Any) -> Any:
        found = known.get(dtype.name)
        if found is None:
            found = known[dtype.name] = stock(dtype)
        return found

    return get_numpy_dtype


def _convert(module: Any, stock: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """_implicit_cvt, the types of common arguments remembered: pointers by dtype, and integers of 32 bits."""
    handle, tensor = module.TensorHandle, module.tl.tensor
    types: dict[Any, Any] = {}

    def convert(argument: Any) -> Any:
        kind: Any = type(argument)
        key: Any = kind
        if kind is int and -(1 << 31) <= argument < 1 << 31:
            data = np.array([argument], dtype=np.int32)
        elif hasattr(argument, "data_ptr"):
            key, data = (kind, argument.dtype), np.array([argument.data_ptr()], dtype=np.uint64)
        else:
            return stock(argument)
        known = types.get(key)
        if known is None:
            converted = stock(argument)
            types[key] = converted.type
            return converted
        return tensor(handle(data, known), known)

    return convert


def _device_call(module: Any) -> Callable[..., Any]:
    """InterpretedFunction.__call__ without patching the language again."""
    error: Any = module.InterpreterError

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        function = self.rewrite()
        try:
            return function(*args, **kwargs)
        except Exception as cause:
            raise error(repr(cause)) from cause

    return call


def _to_tensor(stock: Callable[..., Any], tensor_type: type) -> Callable[..., Any]:
    """Kernels call it on every assignment, nearly always with what is a tensor already."""

    def to_tensor(value: Any, check_type: bool = True) -> Any:
        return value if type(value) is tensor_type else stock(value, check_type)

    return to_tensor


def _executor_init(stock: Callable[..., None]) -> Callable[..., None]:
    """GridExecutor.__init__, its reading of the annotations done once a kernel."""
    constexprs: dict[Any, list[str]] = {}

    def init(self: Any, fn: Any, arg_names: Any, grid: Any, pre_run_hooks: Any = ()) -> None:
        known = constexprs.get(fn)
        if known is None:
            stock(self, fn, arg_names, grid, pre_run_hooks)
            constexprs[fn] = self.constexprs
            return
        self.fn, self.arg_names, self.grid, self.pre_run_hooks = fn, arg_names, grid, pre_run_hooks
        self.constexprs = known

    return init


def _on_host(value: Any) -> bool:
    """Whether the argument is plain or in host memory, so that no copy of it is needed."""
    if isinstance(value, tuple):
        return all(_on_host(item) for item in value)
    value = getattr(value, "base", value)  # of a tensor descriptor, or of a tensor seen as another dtype
    device = getattr(value, "device", None)
    return device is None or getattr(device, "type", "cpu") == "cpu"


def _launch(module: Any, stock: Callable[..., None]) -> Callable[..., None]:
    """GridExecutor.__call__ for arguments that are in host memory; others take stock's way, unchecked."""
    parameters: dict[Any, dict[str, inspect.Parameter]] = {}

    def launch(self: Any, *args: Any, **kwargs: Any) -> None:
        if not all(_on_host(value) for value in (*args, *kwargs.values())):
            stock(self, *args, **kwargs)
            return
        known = parameters.get(self.fn)
        if known is None:
            known = parameters[self.fn] = dict(inspect.signature(self.fn).parameters)
        kwargs = {name: value for name, value in kwargs.items() if name in known}
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        given = _call_arguments(self.fn, known, args, kwargs)
        listener = _PROCESS.listener
        if _PROCESS.watcher is not None:
            _PROCESS.watcher(self.fn.__name__, given)
        if listener is None:
            _run(module, self, given)
            return
        listener.launched(self.fn.__name__, given)
        try:
            _run(module, self, given)
        finally:
            listener.finished()

    return launch


def _call_arguments(
    function: Any, parameters: dict[str, inspect.Parameter], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """inspect.getcallargs, which reads the signature anew at each call, for what it would not refuse."""
    given = {name: parameter.default for name, parameter in parameters.items()}
    places = list(given)[: len(args)]
    if len(args) > len(given) or any(name in kwargs for name in places):
        return inspect.getcallargs(function, *args, **kwargs)
    given.update(zip(places, args, strict=True))
    given.update(kwargs)
    if any(value is inspect.Parameter.empty for value in given.values()):
        return inspect.getcallargs(function, *args, **kwargs)
    return given


def _run(module: Any, executor: Any, given: dict[str, Any]) -> None:
    """Convert the arguments and run each program of the grid in order, as stock does."""
    builder, constexprs = module.interpreter_builder, executor.constexprs
    arguments = {name: arg if name in constexprs else module._implicit_cvt(arg) for name, arg in given.items()}
    grid = executor.grid(arguments) if callable(executor.grid) else executor.grid
    assert len(grid) <= 3, "grid must have at most 3 dimensions"
    grid = (*grid, *(1,) * (3 - len(grid)))
    builder.set_grid_dim(*grid)
    try:
        for builder.grid_idx in product(*(range(size) for size in grid)):
            executor.fn(**arguments)
    except Exception as cause:
        raise module.InterpreterError(repr(cause)) from cause
