"""Replays what a Triton builtin does to numpy arrays, without the type checks that led there.

A builtin of triton.language, called with operands of given types, always makes the same calls to the interpreter's
builder: what it checks, casts and broadcasts depends on types, shapes and Python scalars, never on the data. So the
first call is recorded, compiled to a straight line of builder calls, and later calls with equal types run that. Stock
spends nine tenths of its time on the checks. Results are bit-identical: the same numpy operations run on the same data.
What cannot be keyed or recorded (descriptors, callables) takes the stock path each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stubs.interpreter_assembly import Assembly, Whole, binary_operations

REPLAYS_MAX = 20_000  # compiled calls kept; a kernel needs a few hundred, so this bounds memory and never matters


_MISSING = object()

# Triton compares a Python integer with the range of these; from 1 to 2**31 - 1 all others take any.
NARROW = frozenset(("int1", "int8", "uint8", "int16", "uint16"))

# Methods of a tensor in which an integer operand becomes a constant of the type that its range asks for, and no more.
OPERATORS = frozenset(
    f"__{side}{name}__"
    for side in ("", "r")
    for name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "and", "or")
) | {"__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"}


class Unkeyable(Exception):
    """An argument whose part in the call cannot be told by its type."""


class Replayer:
    """Wraps builtins. ``interpreter`` is the module triton.runtime.interpreter, whose one builder they all share."""

    def __init__(self, interpreter: Any) -> None:
        self.module = interpreter
        self.builder = interpreter.interpreter_builder
        self.semantic = interpreter.interpreter_semantic
        self.tensor = interpreter.tl.tensor
        self.constexpr = interpreter.tl.constexpr
        self.dtype = interpreter.tl.dtype
        self.handle = interpreter.TensorHandle
        self.replays: dict[Any, Any] = {}
        self.recording = False
        self.operations = binary_operations(interpreter.InterpreterBuilder)

    def wrap(self, member: Callable[..., Any]) -> Callable[..., Any]:
        """The builtin ``member`` as kernels call it: stock's own wrapper, with replays."""
        replays, tensor, handle_type = self.replays, self.tensor, self.handle
        operator = getattr(member, "__name__", "") in OPERATORS

        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                kwargs.pop("_semantic", None)
            if self.recording:
                return member(*args, **kwargs, _semantic=self.semantic)
            # The commonest calls by far, an operator on two tensors or a tensor and an integer, are written out.
            whole = None
            if len(args) == 2 and not kwargs and type(args[0]) is tensor and type(args[0].handle) is handle_type:
                left, other = args
                handles: list[Any] = [left.handle]
                if type(other) is tensor and type(other.handle) is handle_type:
                    handles.append(other.handle)
                    key: Any = (
                        member,
                        left.type.name,
                        left.handle.dtype.name,
                        other.type.name,
                        other.handle.dtype.name,
                    )
                elif type(other) is int and operator and 0 < other < 1 << 31 and left.handle.dtype.name not in NARROW:
                    whole = other
                    key = (member, left.type.name, left.handle.dtype.name, int)
                else:
                    key = self._key(member, args, kwargs, handles := [])
            else:
                key = self._key(member, args, kwargs, handles := [])
            replay = replays.get(key, _MISSING)
            if replay is None or key is None:
                return member(*args, **kwargs, _semantic=self.semantic)
            if replay is not _MISSING:
                return replay(handles, whole)
            return self._record(member, key, args, kwargs, whole is not None)

        call.__wrapped__ = member  # type: ignore[attr-defined] # as functools.wraps would
        return call

    def _key(
        self, member: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], handles: list[Any]
    ) -> tuple[Any, ...] | None:
        """What the course of the call depends on, the handles of its tensors left in ``handles``; None if unknown."""
        parts: list[Any] = [member]
        try:
            for arg in args:
                self._walk(arg, parts, handles)
            for name, arg in kwargs.items():
                parts.append(name)
                self._walk(arg, parts, handles)
        except Unkeyable:
            return None
        return tuple(parts)

    def _walk(self, arg: Any, parts: list[Any], handles: list[Any]) -> None:
        """Append what the call's course depends on to ``parts``, and the handles of tensors to ``handles``."""
        kind = type(arg)
        if kind is self.tensor:
            handle = arg.handle
            if type(handle) is not self.handle:
                raise Unkeyable
            parts.append(arg.type.name)
            parts.append(handle.dtype.name)
            handles.append(handle)
        elif arg is None or kind is str:
            parts.append(arg)
        elif kind is int or kind is bool:
            parts.append(kind)
            parts.append(arg)
        elif kind is float:
            parts.append(repr(arg))  # tells -0.0 from 0.0 and equals itself for NaN
            parts.append(kind)
        elif kind is self.constexpr:
            parts.append(kind)
            self._walk(arg.value, parts, handles)
        elif isinstance(arg, self.dtype):
            parts.append(kind)
            parts.append(arg.name)
        elif kind is tuple or kind is list:
            parts.append(kind)
            parts.append(len(arg))
            for item in arg:
                self._walk(item, parts, handles)
        elif kind is slice:
            parts.append(kind)
            for item in (arg.start, arg.stop, arg.step):
                self._walk(item, parts, handles)
        else:
            raise Unkeyable

    def _record(
        self, member: Callable[..., Any], key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], variable: bool
    ) -> Any:
        """Run the call once through a recording builder and keep its replay, or None where it has none."""
        if len(self.replays) >= REPLAYS_MAX:
            self.replays.clear()
        originals: dict[int, Any] = {}
        fresh: list[Any] = []
        copies = tuple(self._copy(arg, fresh, originals) for arg in args)
        if variable:
            copies = (copies[0], Whole(copies[1]))
        named = {name: self._copy(arg, fresh, originals) for name, arg in kwargs.items()}
        recorder = Recorder(self.builder, self.handle, fresh)
        self.recording, self.semantic.builder = True, recorder
        try:
            result = member(*copies, **named, _semantic=self.semantic)
        finally:
            self.recording, self.semantic.builder = False, self.builder
        self.replays[key] = self._compile(recorder, result, variable) if recorder.complete else None
        return self._restore(result, originals)

    def _copy(self, arg: Any, fresh: list[Any], originals: dict[int, Any]) -> Any:
        """The argument with every tensor copied, so that two arguments that are one object are told apart."""
        if type(arg) is self.tensor:
            handle = self.handle(arg.handle.data, arg.handle.dtype, arg.handle.attr)
            fresh.append(handle)
            copy = object.__new__(self.tensor)
            copy.__dict__.update(arg.__dict__)
            copy.handle = handle
            originals[id(copy)] = (copy, arg)
            return copy
        if type(arg) in (tuple, list):
            return type(arg)(self._copy(item, fresh, originals) for item in arg)
        return arg

    def _restore(self, result: Any, originals: dict[int, Any]) -> Any:
        if type(result) is tuple:
            return tuple(self._restore(item, originals) for item in result)
        return originals[id(result)][1] if id(result) in originals else result

    def _compile(self, recorder: Recorder, result: Any, variable: bool) -> Callable[..., Any] | None:
        """A function (handles, whole) -> result that repeats the recorded calls; None if it cannot be had.

        ``variable``: the integer operand may be another next time, so it must have reached the builder as it was.
        """
        program = Assembly(self.module, self.operations, recorder)
        expression = program.result(result)
        if expression is None:
            return None
        replay = program.assemble(expression)
        return replay if program.uses_whole == variable else None


class Recorder:
    """Stands in for the builder during one call; notes each ``create_`` and ``get_`` that makes a handle."""

    def __init__(self, builder: Any, handle_type: type, arguments: list[Any]) -> None:
        self._builder = builder
        self._handle_type = handle_type
        self.values: list[Any] = list(arguments)  # handles, kept alive so that ids stay theirs
        self.places = {id(handle): place for place, handle in enumerate(arguments)}
        self.arguments = len(arguments)
        self.nodes: list[tuple[str, tuple[Any, ...], dict[str, Any], int | None]] = []
        self.complete = True

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._builder, name)
        if not name.startswith(("create_", "get_")) or name.endswith("_ty") or not callable(value):
            return value

        def noted(*args: Any, **kwargs: Any) -> Any:
            result = value(*args, **kwargs)
            if type(result) is self._handle_type:
                self.nodes.append((name, args, kwargs, self._place(result)))
            elif result is None and name.startswith("create_"):
                self.nodes.append((name, args, kwargs, None))
            elif name != "get_cache_policy":
                self.complete = False
            return result

        return noted

    def _place(self, handle: Any) -> int:
        if id(handle) not in self.places:
            self.places[id(handle)] = len(self.values)
            self.values.append(handle)
        return self.places[id(handle)]
