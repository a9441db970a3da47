"""The source of one SGLang release, parsed on demand and never imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# A file that mentions none of these can neither hold an attention backend nor read one; most models do not.
MENTIONS_BACKEND = re.compile(r"attn_backend|AttentionBackend|AttnBackend")
# Code of the package that serves no attention backend of the language models, or only tests them.
SKIPPED_PARTS = frozenset({"test", "tests", "multimodal_gen"})
REEXPORTS_MAX = 6  # a name that takes longer to resolve is an import loop


@dataclass(frozen=True, slots=True)
class Function:
    """One top-level function or method, with the module and class that hold it."""

    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef
    class_name: str | None
    calls: tuple[ast.Call, ...] = field(default=(), repr=False, compare=False)
    assigns: tuple[ast.Assign | ast.AnnAssign, ...] = field(default=(), repr=False, compare=False)
    returns: tuple[ast.Return, ...] = field(default=(), repr=False, compare=False)

    @property
    def qualname(self) -> str:
        return f"{self.class_name}.{self.node.name}" if self.class_name else self.node.name

    @property
    def key(self) -> str:
        return f"{self.module.name}:{self.qualname}:{self.node.lineno}"

    @property
    def parameters(self) -> tuple[ast.arg, ...]:
        spec = self.node.args
        return (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)


@dataclass(slots=True, eq=False)
class Module:
    """One parsed file: what it imports and what it defines."""

    name: str
    path: str
    text: str
    tree: ast.Module
    imports: dict[str, list[tuple[str, str | None]]] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    methods: dict[str, list[Function]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def all_functions(self) -> Iterator[Function]:
        yield from self.functions.values()
        for methods in self.methods.values():
            yield from methods


def parse_module(name: str, path: str, text: str, *, is_package: bool) -> Module:
    module = Module(name, path, text, ast.parse(text), lines=text.splitlines())
    package = name if is_package else name.rpartition(".")[0]
    for node in walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            origin = _absolute(package, node.module, node.level)
            for alias in node.names:
                module.imports.setdefault(alias.asname or alias.name, []).append((origin, alias.name))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                target = (alias.name, None) if alias.asname else (alias.name.partition(".")[0], None)
                module.imports.setdefault(alias.asname or target[0], []).append(target)
        elif isinstance(node, ast.ClassDef):
            module.classes[node.name] = node
    for statement in _top_level(module.tree.body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            module.functions[statement.name] = make_function(module, statement, None)
    for class_name, class_node in module.classes.items():
        defs = (s for s in _top_level(class_node.body) if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)))
        module.methods[class_name] = [make_function(module, d, class_name) for d in defs]
    return module


def make_function(module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef, class_name: str | None) -> Function:
    inside = list(walk(node))
    return Function(
        module,
        node,
        class_name,
        calls=tuple(n for n in inside if isinstance(n, ast.Call)),
        assigns=tuple(n for n in inside if isinstance(n, (ast.Assign, ast.AnnAssign))),
        returns=tuple(n for n in inside if isinstance(n, ast.Return)),
    )


def walk(root: ast.AST) -> Iterator[ast.AST]:
    """As `ast.walk`, in no order, at half the cost: walking is most of what an audit does."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            if value.__class__ is list:
                stack.extend(v for v in value if isinstance(v, ast.AST))
            elif isinstance(value, ast.AST) and value._fields:
                stack.append(value)


def _absolute(package: str, module: str | None, level: int) -> str:
    if level == 0:
        return module or ""
    parts = package.split(".")
    base = parts[: len(parts) - (level - 1)]
    return ".".join([*base, module] if module else base)


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, seeing through `if`, `try` and `with` around definitions."""
    for statement in body:
        yield statement
        for attribute in ("body", "orelse", "finalbody"):
            if isinstance(statement, (ast.If, ast.Try, ast.With)):
                yield from _top_level(getattr(statement, attribute, []))


class Source:
    """The modules of the release in `folder` (which holds `sglang/`), each parsed at most once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "sglang" / "srt"
        if not self.root.is_dir():
            raise FileNotFoundError(
                f"no SGLang in {folder}: expected the folder {self.root}; give a folder that holds sglang/"
            )
        self._modules: dict[str, Module | None] = {}
        self.scanned = tuple(self._scan())
        self.model_stems = frozenset(p.stem.lower() for p in (self.root / "models").glob("*"))

    def _scan(self) -> Iterator[Module]:
        for path in sorted(self.root.rglob("*.py")):
            if SKIPPED_PARTS.isdisjoint(path.relative_to(self.root).parts):
                text = path.read_text(encoding="utf-8", errors="replace")
                if MENTIONS_BACKEND.search(text):
                    module = self._parse(path, text)
                    if module is not None:
                        yield module

    def _parse(self, path: Path, text: str) -> Module | None:
        parts = path.relative_to(self.folder).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        if name not in self._modules:
            relative = path.relative_to(self.folder / "sglang").as_posix()
            try:
                self._modules[name] = parse_module(name, relative, text, is_package=is_package)
            except SyntaxError:  # a file for a newer Python than this one: not readable, so not audited
                self._modules[name] = None
        return self._modules[name]

    def module(self, name: str) -> Module | None:
        if name not in self._modules:
            stem = self.folder.joinpath(*name.split("."))
            path = next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)
            if path is None or not name.startswith("sglang."):
                self._modules[name] = None
            else:
                return self._parse(path, path.read_text(encoding="utf-8", errors="replace"))
        return self._modules[name]

    def resolve(
        self, module: Module, name: str, hops: int = REEXPORTS_MAX, *, parse: bool = True
    ) -> list[tuple[Module, str]]:
        """Where `name`, as seen in `module`, is defined: (module, class or function name) for each import of it.

        Without `parse`, only among the modules parsed so far.
        """
        if name in module.classes or name in module.functions:
            return [(module, name)]
        found: list[tuple[Module, str]] = []
        for origin, attribute in module.imports.get(name, []) if hops else []:
            target = self.module(origin) if parse else self._modules.get(origin)
            if target is not None and attribute is not None:
                found += self.resolve(target, attribute, hops - 1, parse=parse)
        return found

    def resolve_expression(self, module: Module, node: ast.expr, *, parse: bool = True) -> list[tuple[Module, str]]:
        """`resolve` for a name, a dotted name such as `forward_context.get_attn_backend`, or a quoted annotation."""
        if isinstance(node, ast.Name):
            return self.resolve(module, node.id, parse=parse)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            return self.resolve(module, node.value, parse=parse)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found: list[tuple[Module, str]] = []
            for origin, attribute in module.imports.get(node.value.id, []):
                dotted = f"{origin}.{attribute}" if attribute else origin
                target = self.module(dotted) if parse else self._modules.get(dotted)
                if target is not None:
                    found += self.resolve(target, node.attr, parse=parse)
            return found
        return []
