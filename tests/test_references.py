"""Every name that tests, benchmarks and examples take from a module of this repository is there.

Experiments and benchmarks run seldom, and slow tests import within functions: what they call may have gone meanwhile.
Modules are read, not imported.
"""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

import pytest

from support.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = (ROOT / "tests", ROOT / "examples")
ROOTS = (ROOT, *FOLDERS)
ANY = "__getattr__"  # a module that defines it makes its names when they are asked for


@functools.cache
def find_module(name: str) -> Path | None:
    """Return the file of a module, the folder of a package of tests without ``__init__``; None for those of others."""
    for root in ROOTS:
        place = root.joinpath(*name.split("."))
        for path in (place.with_suffix(".py"), place / "__init__.py", place):
            if path.is_file() or (path.is_dir() and root.name != "examples"):
                return path
    return None


@functools.cache
def list_names(path: Path) -> frozenset[str]:
    """Return what a module defines or imports, and the modules of a package."""
    names = {one.stem for one in path.parent.iterdir()} if path.name == "__init__.py" else set()
    if path.is_dir():
        return frozenset(one.stem for one in path.iterdir())
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    for node in waiting:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        waiting += ast.iter_child_nodes(node)
    return frozenset(names)


def lacks_name(module: str, name: str) -> bool:
    """Return whether a module of this repository has no such name."""
    path = find_module(module)
    return path is not None and not {name, ANY} & list_names(path) and not name.startswith("__")


def list_missing(tree: ast.AST) -> list[str]:
    """Return the names of modules of this repository that a program uses and that are nowhere."""
    modules, missing, nodes = dict[str, str](), list[str](), list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and find_module(node.module.partition(".")[0]):
            if find_module(node.module) is None:
                missing.append(node.module)
                continue
            missing += [f"{node.module}.{one.name}" for one in node.names if lacks_name(node.module, one.name)]
            inside = {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
            modules |= {name: module for name, module in inside.items() if find_module(module)}
        elif isinstance(node, ast.Import):
            missing += [
                one.name for one in node.names if find_module(one.name.partition(".")[0]) and not find_module(one.name)
            ]
            modules |= {one.asname or one.name: one.name for one in node.names if find_module(one.name)}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in stored:
            module = modules.get(node.value.id)
            if module is not None and lacks_name(module, node.attr):
                missing.append(f"{module}.{node.attr}")
    return missing


@pytest.mark.slow
def test_every_name_is_there() -> None:
    files = sorted(path for folder in FOLDERS for path in folder.rglob("*.py"))
    assert len(files) > 200
    missing = {path: list_missing(ast.parse(path.read_text(encoding="utf-8"))) for path in files}
    wrong = [f"{path.relative_to(ROOT)}: {name}" for path, names in missing.items() for name in names]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("program", "missing"),
    [
        ("from privsql.exact import as_fraction\nimport privsql.exact as e\ne.parse_linear", []),
        ("from privsql.exact import gone", ["privsql.exact.gone"]),
        ("def f():\n    from privsql import exact\n    exact.gone()", ["privsql.exact.gone"]),
        ("import privsql.gone", ["privsql.gone"]),
        ("from support.gone import one", ["support.gone"]),
        ("from privsql import exact\ndef f(exact): return exact.gone", []),  # another one
    ],
)
def test_what_has_gone_is_named(program: str, missing: list[str]) -> None:
    assert list_missing(ast.parse(program)) == missing
