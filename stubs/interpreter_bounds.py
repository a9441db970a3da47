"""An exact memory checker for interpreted kernels: tagged pointers, and rules about KV rows.

For the length of a launch each tensor argument is handed over as a virtual address whose upper bits name the argument.
The interpreter's pointer arithmetic is plain uint64 addition, so the tag survives every operation; loads, stores and
atomics are the only places that turn a pointer into memory, and there each unmasked lane is checked and translated.
A lane outside any storage is masked out, never dereferenced. What is allocated but not the argument's own is reported
and let through: that is what a GPU would do.

Kinds: ``storage`` outside the argument's storage, ``view`` inside the storage and outside the tensor, ``hole`` between
the rows of a strided tensor, ``wrapped`` outside by a multiple of 2**32 elements, ``wild`` an address that belongs to no
argument, ``uninitialised`` a read of what nobody wrote, ``row_read`` and ``row_write`` a row that the policy does not
allow (or ``entry_read`` and so on, as the policy calls its rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stubs.interpreter_assembly import handle_maker
from stubs.interpreter_log import Batch, Log, SlotPolicy
from stubs.interpreter_region import TOP, Region, Rule
from stubs.interpreter_request import RequestTrace
from stubs.interpreter_violation import violation_of

_REACH = 1 << 46  # farther from an argument's base than this, an address is nobody's


class Checker:
    """Stands in for the builder's memory methods while attached; see the module's docstring."""

    METHODS = ("create_masked_load", "create_masked_store", "create_atomic_cas", "create_atomic_rmw")

    def __init__(
        self, module: Any, policies: Sequence[SlotPolicy], reachable: Sequence[Any], batch: Batch | None
    ) -> None:
        self.module = module
        self.rules = [Rule.of(policy) for policy in policies]
        self.reachable = [*reachable, *(policy.buffer for policy in policies)]
        self.requests = RequestTrace(batch or Batch(0))
        self.log = Log()
        self.kernel = ""
        self.views_bind = True  # whether an access outside of the tensor and inside its storage is a fault
        self.names: dict[int, list[str]] = {}  # by id; one tensor may be several arguments
        self.regions: dict[int, Region] = {}
        self.sizes: dict[str, int] = {}  # by the name of the pointer's type
        self.stock: dict[str, Any] = {}

    # ---- launches

    def launched(self, kernel: str, arguments: dict[str, Any]) -> None:
        self.kernel, self.names, self.regions = kernel, {}, {}
        self.log.launches += 1
        self.requests.launched()
        for name, argument in arguments.items():
            self._name(name, argument)

    def finished(self) -> None:
        self.names, self.regions = {}, {}

    def _name(self, name: str, argument: Any) -> None:
        if isinstance(argument, tuple):
            for place, item in enumerate(argument):
                self._name(f"{name}[{place}]", item)
        elif hasattr(argument, "data_ptr"):
            self.names.setdefault(id(argument), []).append(name)
        elif hasattr(argument, "base"):
            self._name(name, argument.base)

    def attach(self) -> None:
        """Put the checks in; the memory methods are looked up at each call, so replays pass through them too."""
        builder, make, int1 = (
            self.module.InterpreterBuilder,
            handle_maker(self.module.TensorHandle),
            self.module.tl.int1,
        )
        self.stock = {name: getattr(builder, name) for name in self.METHODS}
        stock_load, stock_store, stock_swap, stock_update = self.stock.values()
        check = self._check

        def load(own: Any, pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
            real, safe = check(pointers, _bools(mask), "load")
            return stock_load(own, make(real, pointers.dtype), make(safe, int1), *rest, **named)

        def store(own: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
            real, safe = check(pointers, _bools(mask), "store")
            return stock_store(own, make(real, pointers.dtype), value, make(safe, int1), *rest, **named)

        def swap(own: Any, pointers: Any, expected: Any, *rest: Any) -> Any:
            real, safe = check(pointers, np.ones(pointers.data.shape, bool), "atomic")
            if not safe.all():  # there is no mask to leave a lane out with: the whole operation is left out
                return make(np.zeros_like(expected.data), expected.dtype)
            return stock_swap(own, make(real, pointers.dtype), expected, *rest)

        def update(own: Any, operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
            real, safe = check(pointers, _bools(mask), "atomic")
            return stock_update(own, operation, make(real, pointers.dtype), value, make(safe, int1), *rest)

        for name, method in zip(self.METHODS, (load, store, swap, update), strict=True):
            setattr(builder, name, method)
        self.stock["_implicit_cvt"] = self.module._implicit_cvt
        self.module._implicit_cvt = self._converter(self.module._implicit_cvt)

    def _converter(self, stock: Any) -> Any:
        """_implicit_cvt with virtual addresses; stock calls it for what tuples and descriptors hold, too."""

        def convert(argument: Any) -> Any:
            converted = stock(argument)
            if hasattr(argument, "data_ptr"):
                tag = len(self.regions) + 1
                names = self.names.get(id(argument), ["?"])
                name = names.pop(0) if len(names) > 1 else names[0]
                tensor = getattr(argument, "base", argument)
                region = Region(name, tensor, tag, self.rules, self.requests.clue(tensor))
                self.regions[TOP >> 48 | tag] = region
                converted.handle.data = np.array([region.virtual], dtype=np.uint64)
            return converted

        return convert

    def detach(self) -> None:
        self.module._implicit_cvt = self.stock.pop("_implicit_cvt")
        for name, method in self.stock.items():
            setattr(self.module.InterpreterBuilder, name, method)

    # ---- accesses

    def _check(self, pointers: Any, mask: NDArray[np.bool_], access: str) -> tuple[Any, NDArray[np.bool_]]:
        """Real addresses, and the mask without the lanes that may not be touched."""
        data = pointers.data
        self.log.accesses += 1
        if data.size == 0:
            return data, mask
        first = data.item(0)
        region = self.regions.get(first >> 48)
        limit = region and region.limit(self._size(pointers.dtype))
        if region is None or limit is None:
            return self._check_mixed(pointers, mask, access)
        if data.size == 1 and region.plain and region.virtual <= first <= region.virtual + limit.item():
            return data + region.shift, mask
        offset = data - region.base
        inside = offset <= limit
        if not inside.all() and (mask & ~inside).any():
            return self._check_mixed(pointers, mask, access)
        if not region.plain:
            self._check_rules(region, offset.view(np.int64), mask, access)
        return data + region.shift, mask

    def _size(self, dtype: Any) -> int:
        """Bytes that one lane of a pointer of this type touches."""
        size = self.sizes.get(dtype.name)
        if size is None:
            size = self.sizes[dtype.name] = _bytes(dtype)
        return size

    def _check_mixed(self, pointers: Any, mask: NDArray[np.bool_], access: str) -> tuple[Any, NDArray[np.bool_]]:
        """The same lane by lane: several arguments in one access, or a lane that is wrong."""
        data = np.asarray(pointers.data)
        size = self._size(pointers.dtype)
        mask = np.broadcast_to(mask, data.shape)
        real, safe = data.copy(), mask.copy()
        tags = data >> np.uint64(48)
        for tag in np.unique(tags[mask]):
            lanes = mask & (tags == tag)
            region = self.regions.get(int(tag))
            if region is None:
                safe &= ~self._check_raw(data.astype(np.int64), lanes, size, access)
                continue
            offset = (data - region.base).astype(np.int64)
            bad = lanes & ((offset < 0) | (offset > region.end - size))
            stored = (offset >= region.storage_start) & (offset <= region.storage_end - size)
            if self.views_bind:
                self._report("view", region, offset, bad & stored, access)
            gone = bad & ~stored
            wrapped = gone & _is_wrapped(offset, region)
            self._report("wrapped", region, offset, wrapped, access)
            self._report("storage", region, offset, gone & ~wrapped, access)
            safe &= ~gone
            self._check_rules(region, offset, lanes & ~bad, access)
            real[lanes] = (offset + region.address).astype(np.uint64)[lanes]
        return real, safe

    def _check_raw(self, address: Any, lanes: Any, size: int, access: str) -> Any:
        """Lanes whose address came from memory, a table of data_ptr()s: only what is known may be touched."""
        known = np.zeros(address.shape, bool)
        for tensor in (*self.reachable, *(region.tensor for region in self.regions.values())):
            storage = tensor.untyped_storage()
            start = storage.data_ptr()
            known |= (address >= start) & (address <= start + storage.nbytes() - size)
        bad = lanes & ~known
        if bad.any():
            self._add("wild", None, address, bad, access)
        return bad

    def _check_rules(self, region: Region, offset: Any, lanes: Any, access: str) -> None:
        """What else may be wrong with an access within the tensor, for those ``lanes``."""
        if region.clue and access == "load" and offset.size == 1:
            program = self.module.interpreter_builder.grid_idx
            self.requests.note(region.clue, region.name, offset.item() // region.item, program)
        if region.dims:
            self._check_holes(region, offset, lanes, access)
        if region.unwritten and access != "store":
            words, pattern = region.unwritten
            found = words.take(offset // region.item, mode="clip")  # lanes that are masked may lie outside
            self._report("uninitialised", region, offset, lanes & (found == pattern), access)
        for rule in region.rules:
            self._check_rows(rule, region, offset, lanes, access)

    def _check_holes(self, region: Region, offset: Any, lanes: Any, access: str) -> None:
        rest = offset // region.item
        hole = np.zeros(offset.shape, bool)
        for stride, count in region.dims:
            place = rest // stride
            rest = rest - place * stride
            hole |= place >= count
        self._report("hole", region, offset, lanes & (hole | (rest != 0)), access)

    def _check_rows(self, rule: Rule, region: Region, offset: Any, lanes: Any, access: str) -> None:
        place = self.requests.place(self.module.interpreter_builder.grid_idx)
        allowed, request = rule.policy.allowed(access, place)
        if allowed is None:
            return
        row = (offset + (region.address - rule.start)) // rule.row_bytes
        bad = lanes & ~allowed.take(row, mode="clip")
        if bad.any() and (bad := bad & (row >= 0) & (row < len(allowed))).any():
            kind = f"{rule.policy.unit}_{'read' if access == 'load' else 'write'}"
            first, name = int(row[bad][0]), rule.policy.name
            self._add(kind, region, offset, bad, access, lands_in=name, row=first, request=request)

    def _report(self, kind: str, region: Region, offset: Any, bad: Any, access: str) -> None:
        if bad.any():
            address = region.address + int(offset[bad][0])
            lands = [
                other.name
                for other in self.regions.values()
                if other is not region and other.address <= address < other.address + other.end
            ]
            self._add(kind, region, offset, bad, access, lands_in=lands[0] if lands else "")

    def _add(self, kind: str, region: Region | None, offset: Any, bad: Any, access: str, **found: Any) -> None:
        program = self.module.interpreter_builder.grid_idx
        told = violation_of(kind, access, region, offset, bad, kernel=self.kernel, program=program, **found)
        self.log.add(told)


def _bytes(dtype: Any) -> int:
    while hasattr(dtype, "element_ty"):
        dtype = dtype.element_ty
    return max(1, int(dtype.primitive_bitwidth) // 8)


def _bools(mask: Any) -> NDArray[np.bool_]:
    """The lanes of a mask as bools: older versions pass bare arrays, and a comparison & int1 leaves integers."""
    data = mask if isinstance(mask, np.ndarray) else mask.data
    return data if data.dtype == np.bool_ else data.astype(np.bool_)


def _is_wrapped(offset: Any, region: Region) -> Any:
    """Whether the offset would be inside had it not lost a multiple of 2**32 elements."""
    element = offset // region.item
    return ((element % (1 << 32)) < region.extent) & (np.abs(offset) < _REACH)
