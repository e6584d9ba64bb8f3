"""Rules that keep the package readable: its size by room, the size of modules, names, and docstrings.

``house_budget.toml`` holds the limits. Raise one only with a line there that says why.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from test_house import MODULES, PACKAGE, inner, nodes, room

if TYPE_CHECKING:
    from collections.abc import Iterator

BUDGET = tomllib.loads((PACKAGE.parent / "tests" / "house_budget.toml").read_text(encoding="utf-8"))
Function = ast.FunctionDef | ast.AsyncFunctionDef
LINES = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in MODULES.items()}
GROUND = "ground"


def find_room(module: str) -> str:
    """Return the room of a module; modules beside the rooms belong to the ground."""
    return room(module) if "." in module else GROUND


def list_functions() -> Iterator[tuple[str, Function]]:
    """Yield every function and method of the package with its module, except special methods."""
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, Function) and not node.name.startswith("__"):
                yield module, node


def count_by_room(sizes: dict[str, int]) -> dict[str, int]:
    """Add figures of modules by room."""
    total: Counter[str] = Counter()
    for module, size in sizes.items():
        total[find_room(module)] += size
    return dict(total)


def is_one_word(name: str) -> bool:
    """Return True for a name without an underscore between words."""
    return "_" not in name.strip("_")


# Size -----------------------------------------------------------------------------------------------------------------


def test_rooms_keep_to_their_lines() -> None:
    over = {name: lines for name, lines in count_by_room(LINES).items() if lines > BUDGET["lines"].get(name, 0)}
    assert not over, f"rooms with more lines than tests/house_budget.toml allows: {over}"


def test_the_package_keeps_to_its_size() -> None:
    arrows = sum(len(inner(module) - {module}) for module in MODULES)
    figures = {"modules": len(MODULES), "lines": sum(LINES.values()), "arrows": arrows}
    over = {name: figure for name, figure in figures.items() if figure > BUDGET["package"][name]}
    assert not over, f"more than tests/house_budget.toml allows: {over}"


def test_modules_are_whole_ideas() -> None:
    """A module has 80 to 700 lines, unless the budget names it as small with a reason."""
    small = BUDGET["small_modules"]
    wrong = [
        f"{module}: {lines} lines"
        for module, lines in LINES.items()
        if lines > 700 or (lines < 80 and module.split(".")[-1] != "__init__" and module not in small)
    ]
    stale = sorted(module for module in small if LINES.get(module, 80) >= 80)
    assert not wrong, "\n".join(wrong)
    assert not stale, f"named as small without need: {stale}"


# Names ----------------------------------------------------------------------------------------------------------------


def test_class_names_are_unique() -> None:
    where = defaultdict(list)
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(module)
    twice = {name: modules for name, modules in where.items() if len(modules) > 1}
    assert not twice, f"classes of one name: {twice}"


def test_no_banned_name() -> None:
    banned = set(BUDGET["names"]["banned"])
    wrong = [
        f"{module}:{node.lineno} {node.name}" for module, node in list_functions() if node.name.strip("_") in banned
    ]
    wrong += [
        f"{module}:{argument.lineno} parameter {argument.arg}"
        for module, node in list_functions()
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if argument.arg in banned
    ]
    wrong += [module for module in MODULES if module.rsplit(".", maxsplit=1)[-1] in banned]
    assert not wrong, "\n".join(wrong)


def test_most_functions_have_two_words() -> None:
    names = [node.name for _, node in list_functions()]
    share = sum(map(is_one_word, names)) / len(names)
    assert share <= BUDGET["names"]["one_word_share"], f"{share:.1%} of function names are one word"


# Borders and docstrings -----------------------------------------------------------------------------------------------


def crosses_border(node: Function) -> bool:
    """Return True if an untyped mapping enters or leaves a function."""
    every = [*node.args.args, *node.args.kwonlyargs]
    hints = [node.returns, *(argument.annotation for argument in every)]
    return any("dict[str, Any]" in ast.unparse(hint) for hint in hints if hint is not None)


def test_no_untyped_mapping_crosses_a_border() -> None:
    """Functions that another room imports hand typed values on; the budget counts those that do not yet."""
    used = defaultdict(set)
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("privsql."):
                for alias in node.names:
                    used[(node.module or "").removeprefix("privsql."), alias.name].add(find_room(module))
    wrong = [
        f"{module}.{node.name}"
        for module, node in list_functions()
        if used[module, node.name] - {find_room(module)} and crosses_border(node)
    ]
    assert len(wrong) <= BUDGET["package"]["untyped_borders"], "\n".join(wrong)


def test_docstrings_say_what_is_returned_or_done() -> None:
    wrong = []
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, Function | ast.ClassDef | ast.Module):
                first = (ast.get_docstring(node) or "").split("\n", maxsplit=1)[0]
                if first.startswith(("What ", "Whether ", "The same", "Itself")):
                    wrong.append(f"{module}:{getattr(node, 'lineno', 1)} {first}")
    assert not wrong, "\n".join(wrong)
