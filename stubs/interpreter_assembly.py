"""Compiles the builder calls recorded of one Triton builtin to a straight-line Python function."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

# Operations whose result does not depend on whether an operand was broadcast before or by numpy itself.
EXACT = frozenset(
    (np.add, np.subtract, np.multiply, np.divide, np.minimum, np.maximum, np.fmin, np.fmax, np.less, np.less_equal)
    + (np.greater, np.greater_equal, np.equal, np.not_equal, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
)
BITWISE = frozenset((np.bitwise_and, np.bitwise_or, np.bitwise_xor))
CASTS = frozenset(
    ("create_si_to_fp", "create_ui_to_fp", "create_fp_to_si", "create_fp_to_ui", "create_int_cast")
    + ("create_fp_ext", "create_fp_trunc")
)
FOLDED = ("create_make_range", "create_splat", "create_broadcast", *CASTS)
MEMORY = ("load", "store", "atomic")  # looked up at each call, so that a checker can stand in between


class Whole(int):
    """A Python integer operand while a call is recorded: what becomes of it is a variable of the replay."""


class Recording(Protocol):
    """What a recorder noted: handles in order of appearance, arguments first, and the calls that made the others."""

    values: list[Any]
    places: dict[int, int]
    arguments: int
    nodes: list[tuple[str, tuple[Any, ...], dict[str, Any], int | None]]


class Assembly:
    """Turns recorded calls into the source of one Python function and compiles it."""

    def __init__(self, module: Any, operations: dict[str, Any], recorder: Recording) -> None:
        self.module, self.operations, self.recorder = module, operations, recorder
        self.handle, self.tensor, self.builder = module.TensorHandle, module.tl.tensor, module.interpreter_builder
        self.names: dict[str, Any] = {"H": handle_maker(module.TensorHandle)}
        self.uses_whole = False
        self.constants: set[int] = set()
        self.makers: dict[int, tuple[str, tuple[Any, ...]]] = {}

    def assemble(self, expression: str) -> Callable[..., Any]:
        """Compile the recorded nodes, last use first, so that what nothing needs is left out."""
        body = []
        needed = set(_variables(expression))
        for target, line in reversed(self._statements()):
            if target is None or target in needed:
                body.append(line)
                needed.update(_variables(line.split(" = ", 1)[1]))
        arguments = [f"    v{place} = handles[{place}]" for place in range(self.recorder.arguments)]
        source = "\n".join(
            ["def replay(handles, whole=None):", *arguments, *reversed(body), f"    return {expression}"]
        )
        exec(compile(source, "<replay>", "exec"), self.names)  # noqa: S102 (text made above, names of ours only)
        replay: Callable[..., Any] = self.names["replay"]
        return replay

    def result(self, result: Any) -> str | None:
        """The expression of the result: tensors around known handles, tuples of them, or what depends on types only."""
        if type(result) is tuple:
            parts = [self.result(item) for item in result]
            return None if None in parts else f"({', '.join(str(part) for part in parts)},)"
        if type(result) is self.tensor:
            attributes = {name: value for name, value in result.__dict__.items() if name != "handle"}
            if result.handle is None:
                handle = "None"
            elif id(result.handle) in self.recorder.places:
                handle = f"v{self.recorder.places[id(result.handle)]}"
            else:
                return None
            return f"{self._name(_tensor_maker(self.tensor, attributes))}({handle})"
        if result is None or isinstance(result, (bool, int, float, str, self.module.tl.constexpr)):
            return self._name(result)
        return None

    def _name(self, value: Any) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def _statements(self) -> list[tuple[str | None, str]]:
        statements: list[tuple[str | None, str]] = []
        for name, args, kwargs, place in self.recorder.nodes:
            target = None if place is None else f"v{place}"
            if place is not None and self._is_constant(name, args, kwargs):
                self.constants.add(place)
                value = self.recorder.values[place]
                made = f"H({self._name(value.data)}, {self._name(value.dtype)})"
            else:
                made = self._call(name, args, kwargs, place)
            statements.append((target, f"    {target or '_'} = {made}"))
            if place is not None:
                self.makers[place] = (name, args)
        return statements

    def _is_constant(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if not (name.startswith("get_") or name in FOLDED) or kwargs or any(type(arg) is Whole for arg in args):
            return False
        places = [self.recorder.places[id(arg)] for arg in args if type(arg) is self.handle]
        return all(place in self.constants for place in places)

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], place: int | None) -> str:
        """The expression of one recorded call: of its numpy operation where that is known, else of the method."""
        module = self.module
        if len(args) == 2 and all(type(arg) is self.handle for arg in args) and not kwargs and place is not None:
            if name in self.operations:
                operation = self.operations[name]
                run = _binary(operation, args[0].dtype.scalar, [arg.data.dtype for arg in args], module)
                return f"{self._name(run)}({self._operands(args, place, operation in EXACT)})"
            if name == "create_addptr":
                size = max(1, args[0].get_element_ty().primitive_bitwidth // 8)
                return f"{self._name(_addptr(size, args[0].dtype, module))}({self._operands(args, place, exact=True)})"
        if name in CASTS and not kwargs and _plain_cast(args):
            cast = _cast(module._get_np_dtype(args[1]), args[1].scalar, module)
            return f"{self._name(cast)}(v{self.recorder.places[id(args[0])]})"
        late = any(word in name for word in MEMORY)
        method = _late(self.builder, name) if late else getattr(self.builder, name)
        passed = [self._argument(arg) for arg in args]
        passed += [f"{key}={self._argument(value)}" for key, value in kwargs.items()]
        return f"{self._name(method)}({', '.join(passed)})"

    def _operands(self, args: tuple[Any, ...], place: int, exact: bool) -> str:
        """Both operands, taken from before their broadcast where numpy then makes the same of them."""
        values = self.recorder.values
        kept = [self._before_broadcast(arg) for arg in args]
        if not exact or np.broadcast_shapes(*(values[item].data.shape for item in kept)) != values[place].data.shape:
            kept = [self.recorder.places[id(arg)] for arg in args]
        return ", ".join(f"v{item}" for item in kept)

    def _argument(self, arg: Any) -> str:
        if type(arg) is self.handle:
            return f"v{self.recorder.places[id(arg)]}"
        if type(arg) is Whole:
            self.uses_whole = True
            return "whole"
        if type(arg) in (list, tuple) and any(type(item) is self.handle for item in arg):
            items = ", ".join(self._argument(item) for item in arg)
            return f"[{items}]" if type(arg) is list else f"({items},)"
        return self._name(arg)

    def _before_broadcast(self, handle: Any) -> int:
        """The place of what was broadcast or splat into ``handle``, which numpy broadcasts on its own."""
        place = self.recorder.places[id(handle)]
        while place in self.makers:
            name, args = self.makers[place]
            if name not in ("create_broadcast", "create_splat"):
                break
            source = self.recorder.places[id(args[1] if name == "create_splat" else args[0])]
            if self.recorder.values[source].data.dtype != self.recorder.values[place].data.dtype:
                break
            place = source
        return place


def _variables(text: str) -> list[str]:
    return re.findall(r"\bv\d+\b", text)


def binary_operations(builder_type: Any) -> dict[str, Any]:
    """The numpy operation behind each binary builder method, asked of the method itself: versions differ."""

    class Probe:
        def binary_op(self, left: Any, right: Any, operation: Any) -> Any:
            return operation

    found = {}
    for name in dir(builder_type):
        method = getattr(builder_type, name)
        if name.startswith("create_") and getattr(method, "__name__", "") == "<lambda>":
            try:
                operation = method(Probe(), None, None)
            except (TypeError, AttributeError):
                continue  # a method of another shape
            if isinstance(operation, np.ufunc):
                found[name] = operation
    return found


def handle_maker(handle_type: Any) -> Callable[[Any, Any], Any]:
    """A TensorHandle without the check of its width, which the caller has made."""
    new = object.__new__

    def make(data: Any, dtype: Any) -> Any:
        handle = new(handle_type)
        handle.data = data
        handle.dtype = dtype
        handle.attr = {}
        return handle

    return make


def _tensor_maker(tensor_type: Any, attributes: dict[str, Any]) -> Callable[[Any], Any]:
    """A tl.tensor of a known type around a handle; its type, shape and dtype objects are shared."""
    new = object.__new__

    def make(handle: Any) -> Any:
        tensor = new(tensor_type)
        tensor.__dict__.update(attributes)
        tensor.handle = handle
        return tensor

    return make


def _binary(operation: Any, dtype: Any, inputs: list[Any], module: Any) -> Callable[[Any, Any], Any]:
    """InterpreterBuilder.binary_op for operands of known types."""
    make = handle_maker(module.TensorHandle)
    left_dtype, right_dtype = inputs
    pointer = isinstance(dtype, module.tl.pointer_type)
    limit = 8 if pointer else max(1, dtype.primitive_bitwidth // 8)
    narrow = None if pointer else module._get_np_dtype(dtype)
    # Where stock, or a mend of it, treats the type apart: bools as one-bit integers, bfloat16 as what its bits mean.
    if dtype.name == "bf16" or (left_dtype == right_dtype == np.bool_ and operation not in BITWISE):
        builder = module.interpreter_builder
        return lambda left, right: builder.binary_op(left, right, operation)

    def run(left: Any, right: Any) -> Any:
        x, y = left.data, right.data
        if x.dtype is not left_dtype or y.dtype is not right_dtype:  # seen where a mask is an integer
            return module.interpreter_builder.binary_op(left, right, operation)
        data = operation(x, y)
        return make(data.astype(narrow) if data.itemsize > limit else data, dtype)

    return run


def _addptr(size: int, dtype: Any, module: Any) -> Callable[[Any, Any], Any]:
    """InterpreterBuilder.create_addptr for elements of ``size`` bytes."""
    make = handle_maker(module.TensorHandle)
    unsigned = np.uint64

    def run(pointer: Any, offset: Any) -> Any:
        return make(pointer.data + size * offset.data.astype(unsigned), dtype)

    return run


def _plain_cast(args: tuple[Any, ...]) -> bool:
    """Whether cast_impl comes down to astype: it does but between float32 and bfloat16."""
    return {args[0].dtype.scalar.name, args[1].scalar.name} != {"bf16", "fp32"} and args[1].scalar.name != "bf16"


def _cast(numpy_dtype: Any, dtype: Any, module: Any) -> Callable[[Any], Any]:
    make = handle_maker(module.TensorHandle)
    return lambda source: make(source.data.astype(numpy_dtype), dtype)


def _late(builder: Any, name: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: getattr(builder, name)(*args, **kwargs)
