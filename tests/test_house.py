"""The plan of the house: which room may import which, who knows an engine, a mechanism, chance or SQL.

A finding names the file and what is wrong in it; the rooms are drawn in ``privsql/README.md``.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

import pytest

from privsql.engine.database import SERVERS, SPARK
from privsql.mechanisms.registry import KINDS, get_mechanism, get_parameters
from support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = ROOT / "privsql"
MODULES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in sorted(PACKAGE.rglob("*.py"))}
ROOMS = (
    "cli",
    "verbs",
    "serving",
    "pages",
    "releases",
    "source",
    "mechanisms",
    "attacks",
    "answers",
    "model",
    "engine",
)
GROUND = ("plot", "outcomes", "markup", "figures", "dp_random", "keyed_random", "calls", "exact", "system", "errors")
KNOWN = {
    kind: {kind, get_parameters(kind).__name__}.union(
        *({type(one).__name__} | ({view.__name__} if (view := one.attack_view()) else set()) for one in mechanisms)
    )
    for kind, mechanisms in (
        (kind, [get_mechanism(kind, algorithms[0]) for algorithms in classes.values()])
        for kind, classes in KINDS.items()
    )
}
FOLDERS = {  # where the mechanisms of a kind stand; the first folder has the parameters of all of them
    kind: [place.split(".")[2] for place in classes] for kind, classes in KINDS.items()
}
LAYERS = ("__main__", "cli", "__init__", *ROOMS[1:], *GROUND)  # imports point down this list
HELP = {"help", "epilog", "metavar"}  # arguments that hold what people read
ENGINES = {"adbc_driver_manager", "adbc_driver_postgresql", "duckdb", "py4j", "pyspark", "sqlite3"}


# What a module holds --------------------------------------------------------------------------------------------------


@functools.cache
def parsed(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@functools.cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """Every node of the syntax tree of a module."""
    return tuple(ast.walk(parsed(module)))


@functools.cache
def imports(module: str) -> set[str]:
    """Dotted names of what a module imports, under TYPE_CHECKING too; for ``from a import b`` a.b."""
    found: set[str] = set()
    for node in nodes(module):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def inner(module: str) -> set[str]:
    """The modules of the package that a module imports."""
    return {_module(name) for name in imports(module) if name.split(".")[0] == "privsql"}


def _module(name: str) -> str:
    parts = name.split(".")[1:]
    for end in range(len(parts), 0, -1):
        for candidate in (".".join(parts[:end]), ".".join([*parts[:end], "__init__"])):
            if candidate in MODULES:
                return candidate
    return "__init__"


def outer(module: str) -> set[str]:
    """The packages that a module imports."""
    return {name.split(".")[0] for name in imports(module)}


def room(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def docstrings(tree: ast.AST) -> set[int]:
    """Strings that stand for themselves: docstrings, and comments on attributes."""
    alone = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {id(value) for value in alone if isinstance(value, ast.Constant)}


def strings(module: str) -> Iterator[tuple[int, str]]:
    """The strings of a module with their lines, without docstrings."""
    skipped = docstrings(parsed(module))
    for node in nodes(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


# Rooms ----------------------------------------------------------------------------------------------------------------


def test_every_module_stands_in_a_room() -> None:
    assert {room(module) for module in MODULES} <= set(LAYERS)
    assert {room(module) for module in MODULES} >= set(ROOMS)


def layer(module: str) -> int:
    return LAYERS.index(room(module))


@pytest.mark.slow
def test_imports_point_down() -> None:
    """``privsql/__init__.py`` hands public names on; it stands above what it names and below the command line."""
    wrong = [f"{module} -> {name}" for module in MODULES for name in inner(module) if layer(name) < layer(module)]
    assert not wrong, "\n".join(wrong)


def test_only_the_door_knows_an_engine() -> None:
    """Nothing outside the engine imports one, nor what it is made of: ``engine.open`` is the door."""
    inside = [module for module in MODULES if module.startswith(("engine.duck.", "engine.postgres", "engine.spark"))]
    wrong = [
        f"{module} -> {name}"
        for module in MODULES
        for name in inner(module) & set(inside)
        if module not in inside and module != "engine.open"
    ]
    wrong += [f"{module} -> {name}" for module in MODULES if module not in inside for name in outer(module) & ENGINES]
    assert not wrong, "\n".join(wrong)


def test_no_kind_of_engine_is_named_outside_the_engine() -> None:
    """What a kind means for others is in its ``EngineTraits``; values of keys (``Literal``) are words of publishers."""
    wrong = []
    for module in MODULES:
        if room(module) in ("engine", "cli") or "." not in module:  # these speak SQL, or of flags
            continue
        keys = {
            id(part)
            for node in nodes(module)
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal"
            for part in ast.walk(node)
        }
        wrong += [
            f"{module}:{node.lineno}: {node.value}"
            for node in nodes(module)
            if isinstance(node, ast.Constant) and node.value in (SPARK, *SERVERS) and id(node) not in keys
        ]
    assert not wrong, "\n".join(wrong)


def test_no_mechanism_is_known_outside_its_room() -> None:
    """By name, class or kind: in code and in strings, but for docstrings. The registry alone lists them."""
    wrong = []
    for module in MODULES:
        tree = nodes(module)
        folder = module.split(".")[1] if module.startswith("mechanisms.") else ""
        if module == "mechanisms.registry":
            continue
        strange = {name for kind, names in KNOWN.items() if folder not in FOLDERS[kind] for name in names}
        named = [(node.lineno, node.id) for node in tree if isinstance(node, ast.Name)]
        named += [(node.lineno, node.attr) for node in tree if isinstance(node, ast.Attribute)]
        named += [
            (node.lineno, part)
            for node in tree
            if isinstance(node, ast.ImportFrom | ast.Import)
            for alias in node.names
            for part in (*alias.name.split("."), *(getattr(node, "module", None) or "").split("."))
        ]
        named += [(line, word) for line, text in strings(module) for word in re.findall(r"\w+", text)]
        wrong += [f"{module}:{line}: {name}" for line, name in named if name in strange]
    assert not wrong, "\n".join(wrong)


def test_no_imports_in_circles() -> None:
    order = list(TopologicalSorter({module: inner(module) - {module} for module in MODULES}).static_order())
    assert set(order) == set(MODULES)


def test_the_checks_of_a_release_share_nothing_with_the_search() -> None:
    shared = {
        f"mechanisms.bucketize.{name}"
        for name in ("parameters", "tables", "bounds", "beliefs", "fake_law", "estimator")
    }
    known = {name for name in inner("mechanisms.bucketize.checks") if room(name) == "mechanisms"}
    assert known <= {"mechanisms.base", *shared}
    known = {name for name in inner("mechanisms.permute.checks") if room(name) == "mechanisms"}
    assert known == {"mechanisms.base", *(f"mechanisms.permute.{name}" for name in ("parameters", "scale", "tables"))}


def test_a_count_query_needs_no_arrays() -> None:
    assert not outer("answers.sql.compiler") & {"numpy", "pandas", "pyarrow", "scipy"}


# Chance and SQL -------------------------------------------------------------------------------------------------------


def draws(module: str) -> Iterator[str]:
    """What of a module draws a number, or could."""
    yield from outer(module) & {"random", "secrets", "randomgen", "uuid", "opendp"}
    yield from (name for name in imports(module) if name.startswith("numpy.random"))
    called = {id(node.func) for node in nodes(module) if isinstance(node, ast.Call)}
    for node in nodes(module):
        if isinstance(node, ast.Attribute):
            shown = ast.unparse(node)
            of_numpy = re.match(r"(np|numpy)\.random\.(\w+)$", shown)
            named = node.attr in {"urandom", "getrandom", "default_rng", "RandomState"}
            if named or (of_numpy and (of_numpy[2] not in {"Generator", "BitGenerator"} or id(node) in called)):
                yield shown


def test_only_noise_draws() -> None:
    wrong = [
        f"{module}: {shown}"
        for module in MODULES
        if module not in {"keyed_random", "dp_random"}
        for shown in draws(module)
    ]
    assert not wrong, "\n".join(wrong)


def test_keys_and_noise_load_no_more_than_they_need() -> None:
    code = (
        "import sys; import privsql.keyed_random; heavy = {'numpy', 'opendp', 'pandas', 'randomgen', 'scipy'}; "
        "print(*sorted(heavy & set(sys.modules))); import privsql.dp_random; "
        "privsql.dp_random.noise_for(privsql.keyed_random.system_key()); "
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["", "numpy"]


def test_no_sql_in_python() -> None:
    queries = re.compile(r"\s*\(?\s*(SELECT|WITH|INSERT|UPDATE|DELETE|MERGE|VALUES|FROM)\s")
    changes = re.compile(r"\s*(CREATE|ALTER|DROP|ATTACH|DETACH|COPY|SET|USE|CHECKPOINT|DESCRIBE|PRAGMA|INSTALL|LOAD)\s")
    anywhere = re.compile(r"\bSELECT\b.+\bFROM\b", re.DOTALL)
    wrong = []
    for module in MODULES:
        forbidden: list[Callable[[str], object]] = [queries.match]
        if not module.startswith(("engine.duck", "engine.postgres", "engine.spark_release")):  # an engine owns its DDL
            forbidden += [changes.match, anywhere.search]
        told = help_texts(module)
        wrong += [
            f"{module}:{line}: {text}"
            for line, text in strings(module)
            if (line, text) not in told and any(found(text) for found in forbidden)
        ]
    assert not wrong, "\n".join(wrong)


def help_texts(module: str) -> set[tuple[int, str]]:
    """What the command line's help says, with lines."""
    given = (node.value for node in nodes(module) if isinstance(node, ast.keyword) and node.arg in HELP)
    parts = (part for value in given for part in ast.walk(value))
    return {(part.lineno, part.value) for part in parts if isinstance(part, ast.Constant)}
