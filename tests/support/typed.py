"""Write ``privsql/source/typed_keywords.pyi``, the keywords of ``publish`` and ``plan``, from the models."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from privsql.engine.database import RunKeywords
from privsql.mechanisms.registry import KINDS
from privsql.source.keywords import KIND, LONG, MECHANISM, SHORT, Flag, list_flags
from privsql.source.spec import schema
from support.places import ROOT

FILE = ROOT / "privsql" / "source" / "typed_keywords.pyi"
HEAD = '''"""Types of the keywords of ``publish`` and ``plan``, for editors and type checkers; no module has this name.

Made from the models of a specification: ``pytest tests/test_python.py --regenerate`` writes this file anew.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, TypeAlias, TypedDict

from privsql.calls import PathLike
from privsql.engine.database import Options
from privsql.keyed_random import Key

Number: TypeAlias = int | float | Decimal | Fraction | str  # exact: a float is the decimal that it prints
Names: TypeAlias = str | Sequence[str]
Value: TypeAlias = Number | Sequence[Any] | Mapping[str, Any]  # a table, or its short form

class Planning(TypedDict, total=False):
'''
PUBLISHING = '''
class Publishing(Planning, total=False):
    key: Key | None
    """The key that makes every random choice. [default: one that follows from the ledger's key]"""
    key_file: PathLike | None
    """A file that holds such a key; made, mode 0600, if it is not there."""
    seed: int | None
    """For tests only: a public seed; the release says so."""
    replace: bool
    """Replace an existing release."""
    repeat: bool
    """Replace an existing release only by the same again."""
    nobody_has_it: bool
    """With replace: nobody has received the release that is there."""
    allow_composition: bool
    """Publish the same subjects again where no guarantee covers it."""
'''


def write_types() -> str:
    """Return the text of the file."""
    data = json.loads(schema())
    running = {name: str(getattr(hint, "__forward_arg__", hint)) for name, hint in RunKeywords.__annotations__.items()}
    lines = [f"    {name}: {hint}\n" for name, hint in running.items() if name != "options"]
    for name, flag in list_flags().items():
        hints = [type_text(one, data) for one in find_properties(flag, data)]
        hint = " | ".join(dict.fromkeys(hints))
        text = join_literals(hints) if all(one.startswith("Literal[") for one in hints) else hint
        if name == "options":  # of a CSV file, or of how the verb runs
            text = f"Options | {text} | None"
        if name == KIND:
            lines.append(
                f"    {MECHANISM}: str | Mapping[str, Any]\n{indent_help('A kind, an algorithm, or a table.')}"
            )
        lines.append(f"    {name}: {text}\n{indent_help(flag.help)}")
        if name == LONG:
            lines.append(f'    {SHORT}: {text}\n    """Short for {LONG}."""\n')
    return HEAD + "".join(lines) + PUBLISHING


def find_properties(flag: Flag, data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of a key: of a mechanism's key one for each mechanism that has it."""
    mechanisms = data["properties"]["mechanism"]["discriminator"]["mapping"]
    sections = {"columns": "Columns", "source": "Source", "release": "ReleaseSection", "ledger": "Ledger"}
    owners = [sections[flag.section]] if flag.section in sections else [mechanisms[one] for one in flag.fields]
    return [data["$defs"][one.rpartition("/")[2]]["properties"][flag.key] for one in owners]


def type_text(field: dict[str, Any], data: dict[str, Any]) -> str:
    """Return the type of what a caller may hand over for a key with this schema."""
    if "$ref" in field:
        return "Value"
    if "anyOf" in field:
        parts = list(dict.fromkeys(type_text(one, data) for one in field["anyOf"] if one != {"type": "null"}))
        return "Number" if set(parts) <= {"Number", "str"} and "Number" in parts else " | ".join(parts)
    if "enum" in field or "const" in field:
        return f"Literal[{', '.join(map(json.dumps, field.get('enum', [field.get('const')])))}]"
    parts = [
        type_text(field[key], data) for key in ("additionalProperties", "items") if isinstance(field.get(key), dict)
    ]
    plain = {"boolean": "bool", "integer": "int", "number": "Number", "string": "str"}
    several = {"object": "Mapping[str, {}]", "array": "Names" if parts == ["str"] else "Sequence[{}]"}
    text = several[field["type"]].format(*parts) if parts else plain[field["type"]]
    return "PathLike" if field.get("format") == "path" else text.replace("[Names]", "[Sequence[str]]")


def join_literals(hints: list[str]) -> str:
    """Return one literal of all values."""
    values = dict.fromkeys(value for hint in hints for value in hint[len("Literal[") : -1].split(", "))
    text = f"Literal[{', '.join(values)}]"
    if len(text) < 100 and len(values) <= len(KINDS):
        return text
    return "Literal[\n" + "".join(f"        {value},\n" for value in values) + "    ]"


def indent_help(text: str) -> str:
    """Return the help of a flag as the docstring of a key."""
    lines = textwrap.wrap(text.replace("\\", "\\\\"), 112) or [""]
    if len(lines) == 1:
        return f'    """{lines[0]}"""\n'
    return '    """' + "\n    ".join(lines) + '\n    """\n'
