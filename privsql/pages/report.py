"""The page of a report: facts in, HTML out. What stands in it of a release is escaped, cleaned and cut."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from privsql.engine.folders import private
from privsql.errors import EngineError, UsageError
from privsql.extras import PAGES, PICTURES
from privsql.markup import Html, cleaned, plain
from privsql.pages import rendering
from privsql.pages.shown import Shown

if TYPE_CHECKING:
    from privsql.model.checks import Result
    from privsql.pages.facts import Report

ENDINGS = (".html", ".htm")
MOST = 100  # rows of a table
WIDE = 400  # characters of a cell


def ready(target: Path) -> None:
    """``UsageError`` for what is no name of a page, ``EngineError`` without what draws one: better known at once."""
    if target.suffix.lower() not in ENDINGS:
        raise UsageError(f"--to {target}: a page ends in .html")
    PAGES.need()
    PICTURES.need()


def write(report: Report, target: Path) -> None:
    """The page as a file, whole or not at all; an internal one is for its owner alone. ``EngineError`` if it can't be.

    A page that is there is replaced.
    """
    text = html(report)
    made: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            made = Path(file.name)
            file.write(text)
        if not report.internal:
            made.chmod(private.spare(0o666))
        made.replace(target)
    except OSError as error:
        if made is not None:
            with suppress(OSError):
                made.unlink()
        raise EngineError(f"{target}: can't be written: {error.strerror}") from error


def html(report: Report) -> str:
    """The page as text; ``EngineError`` where what makes it is not installed."""
    manifest = report.manifest
    return rendering.page(
        "report.html",
        report=report,
        manifest=manifest,
        title=_title(report),
        failed=[one for one in report.checks if not one.ok],
        failed_rows=[(one.name, plain("; ".join(one.offending), WIDE)) for one in report.checks if not one.ok],
        checks=[(_check(one), "yes" if one.ok else f"NO ({one.violations:,})") for one in report.checks],
        parameters=[(rendering.short(name), _text(value)) for name, value in manifest.parameters.items()][:MOST],
        files=[(rendering.short(name), digest) for name, digest in report.digests.items()][:MOST],
        lines=[(name, plain(str(value), WIDE)) for name, value in _lines(report)],
        learnt=report.learnt,
        shown=None if report.learnt is None else Shown.of(report.learnt, manifest.published),
    )


def _title(report: Report) -> str:
    kind = "INTERNAL, shows true counts" if report.internal else "Report on a release"
    return f"{'' if report.verified else 'NOT VERIFIED: '}{kind}: {plain(report.manifest.name, rendering.SHORT)}"


def _check(one: Result) -> Html:
    """A check, and what it compared where it says so."""
    compared = f'<br><span class="quiet">{cleaned(one.compared, WIDE)}</span>' if one.compared else ""
    return Html(cleaned(one.name, WIDE) + compared)


def _lines(report: Report) -> list[tuple[str, object]]:
    """What the release says of itself, without its parameters, which have a table of their own."""
    return [one for one in report.learnt.lines if one[0] != "asked for"] if report.learnt else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
