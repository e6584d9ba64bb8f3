"""Pages that a build makes: of the README and its like, of ``--help``, of the schema and of docstrings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from typer.main import get_command

from privsql import _ALIASES, _HOMES
from privsql.cli.app import PROGRAM, app

ROOT = Path(__file__).parent.parent
WHOLE = {"index.md": "README.md", "security.md": "SECURITY.md", "changelog.md": "CHANGELOG.md"}
LINKS = {"SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    made = {name: _moved((ROOT / source).read_text(encoding="utf-8")) for name, source in WHOLE.items()}
    made |= {"reference/cli.md": command_line(), "reference/python.md": python()}
    made["reference/specification.md"] = specification()
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def _moved(text: str) -> str:
    """A page of the top folder with the links that it has in ``docs/``."""
    text = text.replace("](docs/", "](")
    return re.sub(r"\]\(([A-Z]+\.md)\)", lambda found: f"]({LINKS[found[1]]})", text)


def on_post_build(config: Any) -> None:
    """Show the navigation beside the text from 1,120 pixels on: the theme's own limit of 1,220 is wide for a laptop."""
    for path in (Path(config["site_dir"]) / "assets").rglob("*.min.*"):
        if path.suffix in (".css", ".js"):
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace("76.25em", "70em").replace("76.234375em", "69.984375em"), encoding="utf-8")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page without the links that lead out of the documentation: these files lie in the repository."""
    return re.sub(r"\[([^\]]+)\]\((?:\.\./)?(?:examples|tests|privsql|sql)/[^)]*\)", r"\1", markdown)


def command_line() -> str:
    """The help of every verb."""
    top = get_command(app)
    with top.make_context(PROGRAM, ["--help"], resilient_parsing=True) as context:
        shown = [("", top.get_help(context))]
        for name in top.list_commands(context):
            verb = top.get_command(context, name)
            with verb.make_context(f"{PROGRAM} {name}", [], resilient_parsing=True) as inner:
                shown.append((name, verb.get_help(inner)))
    parts = [f"## {PROGRAM} {name}".rstrip() + f"\n\n```text\n{text}\n```" for name, text in shown]
    return "\n\n".join(["# Command line", *parts]) + "\n"


def specification() -> str:
    """Return the page with a table of keys for each section and mechanism of a specification."""
    schema = json.loads((ROOT / "privsql" / "spec.schema.json").read_text(encoding="utf-8"))
    kinds = schema["properties"]["mechanism"]["discriminator"]["mapping"]
    parts = {
        "`[source]`": "Source",
        "`options` of `[source]`": "Csv",
        "`[columns]`": "Columns",
        "`[release]`": "ReleaseSection",
    }
    parts |= {f"`[mechanism]` of kind `{kind}`": where.rpartition("/")[2] for kind, where in sorted(kinds.items())}
    parts |= {"`[ledger]`": "Ledger"}
    first = (
        "This reference is for publishers. It lists every key of a specification, a TOML file or a dict in Python. "
        "Numbers are exact: `0.02` is 1/50. `privsql init --schema` prints the same as JSON Schema."
    )
    tables = [f"## {title}\n\n{_list_keys(schema['$defs'][name])}" for title, name in parts.items()]
    return "\n\n".join(["# Specification", first, *tables]) + "\n"


def _list_keys(model: dict[str, Any]) -> str:
    """Return the table of a model's keys."""
    rows = ["| key | values | default | meaning |", "|---|---|---|---|"]
    for key, facts in model["properties"].items():
        meaning, _, default = facts.get("description", "").rstrip("]").partition("[default: ")
        if not default and facts.get("default") not in (None, [], {}):
            default = f"`{json.dumps(facts['default'])}`"
        rows.append(f"| `{key}` | {_name_values(facts)} | {default} | {meaning.strip().replace('``', '`')} |")
    return "\n".join(rows)


def _name_values(facts: dict[str, Any]) -> str:
    """Return the values that a key takes, in words."""
    if "const" in facts or "enum" in facts:
        return ", ".join(f"`{json.dumps(value)}`" for value in facts.get("enum", [facts.get("const")]))
    if "anyOf" in facts:
        names = [_name_values(one) for one in facts["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(names))
    if facts.get("$ref", "").endswith("/Threshold"):
        return "number, text or table"
    names = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "array": "list",
    }
    return names.get(facts.get("type", ""), "table")


def python() -> str:
    """What ``import privsql`` names."""
    homes = sorted((name, home) for home, names in _HOMES.items() for name in names)
    also = "\n".join(f"- `privsql.{name}` is `privsql.{real}`" for name, real in sorted(_ALIASES.items()))
    parts = [f"::: privsql.{home}.{name}" for name, home in homes]
    return "\n\n".join(["# Python", "All names here are names of `privsql` itself.", also, *parts]) + "\n"
