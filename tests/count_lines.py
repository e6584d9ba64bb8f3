"""Print how many lines each room of the package has: all of them, and those of code."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "privsql"


def count_code_lines(text: str) -> int:
    """Count the lines that are neither blank nor a comment nor part of a docstring."""
    docstrings = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and at not in docstrings for at, line in lines)


def main() -> None:
    """Print a line for each room, and one for the package."""
    lines, code = Counter[str](), Counter[str]()
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(PACKAGE).parts
        for name in (parts[0] if len(parts) > 1 else "ground", "privsql"):
            lines[name] += len(text.splitlines())
            code[name] += count_code_lines(text)
    for name in lines:
        print(f"{name:<12} {lines[name]:>7,} lines {code[name]:>7,} of code")


if __name__ == "__main__":
    main()
