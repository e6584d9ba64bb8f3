"""What a person sees: tables for results. Nothing is computed here."""

from __future__ import annotations

import csv
from decimal import Decimal
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from privsql.mechanisms.registry import of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from privsql.answers.answer import Answer
    from privsql.model.checks import Promised
    from privsql.model.manifest import Manifest
    from privsql.pages.facts import Report
    from privsql.verbs.ledger import Listed
    from privsql.verbs.published import Published
    from privsql.verbs.verify import Verified

FIRST = 8  # bounds that a person is shown
WIDE = 140  # columns of a table that is written to a file
CONTROLS = {*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {ord("\t"), ord("\n")}
ESCAPED = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in CONTROLS}


def visible(text: object) -> str:
    """A text with its control characters written out: what a stranger's release holds does not steer the terminal."""
    return str(text).translate(ESCAPED)


@cache
def out() -> Console:
    """Where results go. Rich is imported when there is something to print."""
    return _console()


def _console(**settings: Any) -> Console:
    from rich.console import Console  # noqa: PLC0415

    class Output(Console):
        """A console whose reader may go."""

        def on_broken_pipe(self) -> None:
            """Say so to whoever prints; by default the process would end here, as if a check had failed."""
            raise BrokenPipeError

    return Output(markup=False, emoji=False, **settings)


def wide() -> Console:
    """The console, or one that is wide enough where no terminal says how wide it is."""
    return out() if out().is_terminal else _console(file=out().file, width=WIDE)


def table(*names: str, right: Iterable[str] = (), lines: bool = False) -> Table:
    """An empty table; ``right``: names of further columns, whose cells stand at the right."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    made = Table(box=box.SIMPLE_HEAD, show_lines=lines)
    for name in names:
        made.add_column(visible(name))
    for name in right:
        made.add_column(visible(name), justify="right")
    return made


def pairs(rows: Iterable[tuple[str, object]]) -> Table:
    """A table of names and what they stand for, without lines."""
    from rich.table import Table  # noqa: PLC0415

    made = Table(box=None, show_header=False)
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, found in rows:
        add(made, name, found)
    return made


def add(made: Table, *cells: object) -> None:
    """A row of a table."""
    made.add_row(*(_cell(value) for value in cells))


def say(text: str) -> None:
    """A line as it is: neither coloured nor broken."""
    out().print(visible(text), highlight=False, soft_wrap=True)


def published(done: Published) -> None:
    """A release that was written, or a plan."""
    out().print(pairs(done.lines))
    if done.release:
        say(f"wrote {done.release}")


def verified(release: Path, found: Verified) -> None:
    """The outcome of every check."""
    made = table("check", "holds", "offending rows")
    for check in found.checks:
        add(
            made,
            check.name,
            "yes" if check.ok else f"NO ({check.violations})",
            "\n".join(filter(None, (*check.offending, check.compared))),
        )
    out().print(made)
    if found.told:
        out().print(pairs(of(found.manifest.mechanism).figures(found.manifest.described(found.told.facts))))
        _bounds(found.told.bounds)
    for note in found.notes:
        say(f"note: {note}")
    say(f"{release}: {'verified' if found.ok else 'NOT verified'}")
    if found.copy is not None:
        say(f"wrote {found.copy}: a copy from its tables alone")


def reported(to: Path, found: Report) -> None:
    """Which page was written, of what kind, which checks do not hold, and which promises are broken."""
    kind = "internal: it shows true counts" if found.internal else "it may be handed out with the release"
    failed = [one for one in found.checks if not one.ok]
    for one in failed:
        say(f"does not hold: {one.name}")
    for adversary in found.broken:
        say(f"A PROMISE IS BROKEN: {adversary.adversary}: {'; '.join(adversary.notes) or 'see the page'}")
    say(f"wrote {to}: {'the release is NOT verified, and the page says so' if failed else f'verified; {kind}'}")


def _bounds(bounds: Sequence[Promised]) -> None:
    """What was verified, value by value."""
    made = table("verified of", right=("bound", "found"))
    for one in bounds[:FIRST]:
        add(made, one.value, one.bound, one.found)
    out().print(made)
    if len(bounds) > FIRST:
        say(f"and {len(bounds) - FIRST:,} more (--json lists all)")


def answered(answer: Answer, *, explain: bool) -> None:
    """The rows of an answer."""
    if explain:
        say(answer.sql)
        say(answer.formula)
    marks = answer.marks
    made = table(right=[*answer.columns, *(["may be empty"] if marks else [])])
    places = {at for one in answer.figures for at in range(one.at, one.at + 4)}
    for number, row in enumerate(answer.rows):
        add(
            made,
            *(_figure(value) if at in places else value for at, value in enumerate(row)),
            *marks[number : number + 1],
        )
    (wide() if len(answer.figures) > 1 else out()).print(made)
    say(answer.interval)
    for note in answer.notes:
        say(f"note: {note}")


def csv_rows(file: IO[str], answer: Answer) -> None:
    """The rows of an answer as CSV."""
    writer = csv.writer(file)
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)


def frequent(found: Sequence[tuple[list[str], float]]) -> None:
    """Item sets with their supports."""
    made = table("items", right=["records"])
    for items, support in found:
        add(made, ", ".join(items), support)
    out().print(made)


def ledger(found: Listed) -> None:
    """The releases of a source, and what they compose to."""
    made = table("release", "made", "name", "mechanism", "records", "new", "held back", "key")
    for entry in found:
        numbers = (entry.records, entry.fresh, entry.held_back)
        counts = (None if number is None else f"{number:,}" for number in numbers)
        add(made, entry.number, entry.made, entry.name, f"{entry.mechanism}, {entry.algorithm}", *counts, entry.key)
    out().print(made)
    for entry in found:
        say(f"{entry.number}: {entry.composes}{'; withdrawn' if entry.withdrawn else ''}")
    if found.spent or found.cap is not None:
        budget(found)


def budget(found: Listed) -> None:
    """What a source has spent, and may."""
    from privsql.verbs.published import capped  # noqa: PLC0415 (who asks for help does not wait for it)

    shown = found.as_json()
    say(f"epsilon: {shown['spent']} spent, {capped(shown['cap'])}")


def inspected(manifest: Manifest) -> None:
    """A manifest."""
    from privsql.releases.lines import lines  # noqa: PLC0415

    out().print(pairs(lines(manifest)))


def _figure(value: object) -> object:
    """A whole number, or a decimal, as one is read; whatever else a figure is as any cell."""
    return f"{value:,}" if isinstance(value, int | Decimal) and not isinstance(value, bool) else value


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if isinstance(value, float) else visible(value)
