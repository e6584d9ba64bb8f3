"""Write ``privsql/source/typed_keywords.pyi``, the keywords of ``publish`` and ``plan``, from the models."""

from __future__ import annotations

import json
from typing import Any

from privsql.engine.database import RunKeywords
from privsql.source.keywords import NAMED
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
'''
SECTIONS = {"source": "Source", "columns": "Columns", "release": "ReleaseSection", "ledger": "Ledger"}
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
    allow_useless: bool
    """Publish although a count of 500 is off by more than a fifth."""
    trace: bool
    """List the SQL statements that ran, with their files, rows and seconds."""
'''


def write_types() -> str:
    """Return the text of the file."""
    sections = read_sections(json.loads(schema()))
    parts = [HEAD]
    for key, hint in sections["mechanism"].items():
        if "\n" in hint:  # a long list has a name
            parts.append(f"{key.title()}: TypeAlias = {hint}\n")
            sections["mechanism"][key] = key.title()
    for section, keys in sections.items():
        parts.append(write_class(f"{section.title()}Keys", keys))
    parts.append(write_class("Settings", {section: f"{section.title()}Keys" for section in sections}))
    running = {name: str(getattr(hint, "__forward_arg__", hint)) for name, hint in RunKeywords.__annotations__.items()}
    named = {name: sections[section][key] for name, (section, key) in NAMED.items()}
    parts.append(write_class("Planning", {**running, **named, "set": "Settings"}))
    return "".join(parts) + PUBLISHING


def write_class(name: str, keys: dict[str, str]) -> str:
    """Return a class of keys with their types."""
    return f"\nclass {name}(TypedDict, total=False):\n" + "".join(f"    {key}: {hint}\n" for key, hint in keys.items())


def read_sections(data: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the types of the keys of every section, of a mechanism's keys those of all mechanisms that have it."""
    models = {section: [model] for section, model in SECTIONS.items()}
    mechanisms = data["properties"]["mechanism"]["discriminator"]["mapping"]
    models["mechanism"] = [one.rpartition("/")[2] for one in mechanisms.values()]
    sections: dict[str, dict[str, str]] = {}
    for section, owners in models.items():
        hints: dict[str, list[str]] = {}
        for owner in owners:
            for key, field in data["$defs"][owner]["properties"].items():
                hints.setdefault(key, []).append(type_text(field, data))
        sections[section] = {
            key: join_literals(listed)
            if all(one.startswith("Literal[") for one in listed)
            else " | ".join(dict.fromkeys(listed))
            for key, listed in hints.items()
        }
    return sections


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
    return text if len(text) < 100 else "Literal[\n" + "".join(f"    {value},\n" for value in values) + "]"
