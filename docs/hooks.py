"""Pages that are made while the documentation is built: of the README and its like, of ``--help`` and of docstrings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from typer.main import get_command

from privsql import _ALIASES, _HOMES
from privsql.cli.app import ALL_KEY, PROGRAM, app

ROOT = Path(__file__).parent.parent
WHOLE = {"index.md": "README.md", "security.md": "SECURITY.md", "changelog.md": "CHANGELOG.md"}
LINKS = {"SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    made = {name: _moved((ROOT / source).read_text(encoding="utf-8")) for name, source in WHOLE.items()}
    made |= {"reference/cli.md": command_line(), "reference/python.md": python()}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def _moved(text: str) -> str:
    """A page of the top folder with the links that it has in ``docs/``."""
    text = text.replace("](docs/", "](")
    return re.sub(r"\]\(([A-Z]+\.md)\)", lambda found: f"]({LINKS[found[1]]})", text)


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
                inner.meta[ALL_KEY] = True
                shown.append((name, verb.get_help(inner)))
    parts = [f"## {PROGRAM} {name}".rstrip() + f"\n\n```text\n{text}\n```" for name, text in shown]
    return "\n\n".join(["# Command line", *parts]) + "\n"


def python() -> str:
    """What ``import privsql`` names."""
    homes = sorted((name, home) for home, names in _HOMES.items() for name in names)
    also = "\n".join(f"- `privsql.{name}` is `privsql.{real}`" for name, real in sorted(_ALIASES.items()))
    parts = [f"::: privsql.{home}.{name}" for name, home in homes]
    return "\n\n".join(["# Python", "All names here are names of `privsql` itself.", also, *parts]) + "\n"
