"""Call shapes and the signatures that must take them."""

from __future__ import annotations

import ast
from dataclasses import dataclass

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class CallShape:
    """What a call passes: how many positionals, which keywords, and whether it unpacks `*args` or `**kwargs`."""

    positional: int
    keywords: frozenset[str]
    unpacks_positional: bool = False
    unpacks_keywords: bool = False

    def __str__(self) -> str:
        parts = [f"{self.positional} positional"] if self.positional else []
        parts += sorted(f"{k}=" for k in self.keywords)
        parts += ["*args"] * self.unpacks_positional + ["**kwargs"] * self.unpacks_keywords
        return f"({', '.join(parts)})"


def shape_of(call: ast.Call) -> CallShape:
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    return CallShape(
        positional=sum(not isinstance(a, ast.Starred) for a in call.args),
        keywords=frozenset(k.arg for k in call.keywords if k.arg is not None),
        unpacks_positional=starred,
        unpacks_keywords=any(k.arg is None for k in call.keywords),
    )


def bound_arguments(function: AnyFunction) -> tuple[list[ast.arg], list[ast.arg]]:
    """Positional and keyword-only parameters of a method, without the receiver (`self` or `cls`)."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    return (positional if static else positional[1:]), list(spec.kwonlyargs)


def mismatch(shape: CallShape, function: AnyFunction) -> str | None:
    """Why a method with this signature refuses a call of this shape; None if it takes it or that cannot be told."""
    positional, keyword_only = bound_arguments(function)
    spec = function.args
    names = [p.arg for p in positional]
    if shape.positional > len(names) and spec.vararg is None:
        return f"takes {len(names)} positional arguments, is given {shape.positional}"
    known = {*names, *(k.arg for k in keyword_only)}
    extra = sorted(shape.keywords - known)
    if extra and spec.kwarg is None:
        return f"takes no keyword {', '.join(extra)}"
    twice = sorted(shape.keywords & set(names[: shape.positional]))
    if twice:
        return f"is given {', '.join(twice)} by position and by keyword"
    if shape.unpacks_positional or shape.unpacks_keywords:
        return None
    missing = sorted(_required(function) - set(names[: shape.positional]) - shape.keywords)
    return f"is not given {', '.join(missing)}" if missing else None


def takes_keywords(function: AnyFunction, names: set[str]) -> bool:
    spec = function.args
    return spec.kwarg is not None or names <= {p.arg for p in (*spec.args, *spec.kwonlyargs)}


def _required(function: AnyFunction) -> set[str]:
    positional, keyword_only = bound_arguments(function)
    with_default = len(function.args.defaults)
    required = {p.arg for p in positional[: max(0, len(positional) - with_default)]}
    return required | {k.arg for k, d in zip(keyword_only, function.args.kw_defaults, strict=True) if d is None}
