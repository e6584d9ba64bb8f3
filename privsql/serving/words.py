"""A question that was chosen, in words: what whoever asked can hold against what was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.answers.base import THEIRS

if TYPE_CHECKING:
    from privsql.serving.asked import Asked, Condition
    from privsql.serving.form import Column, Form

MOST = 5  # values that are named
ITEMS = {"all": ("", "and"), "any": ("at least one of ", "and"), "none": ("neither ", "nor")}


def words(asked: Asked, form: Form) -> str:
    """One sentence; of SQL that somebody wrote none."""
    if asked.sql:
        return ""
    measure = next(one.label for one in form.measures if one.key == asked.measure)
    parts = [_of(form.columns[number], said) for number, said in sorted(asked.conditions.items())]
    parts += [_of_items(name, chosen) for name, chosen in asked.items.items() if chosen]
    parts += [f"{_range(asked.length)} items"] if asked.length.low or asked.length.high else []
    groups = " and of ".join(form.columns[number].name for number in asked.groups)
    among = f" with {'; '.join(parts)}" if parts else "" if groups else " in all"
    by = ", by the literature's formula" if asked.estimator == THEIRS else ""
    return f"{measure}{among}{f', for each value of {groups}' if groups else ''}{by}."


def summary(said: Condition) -> str:
    """What is said of a column, in a few words."""
    parts = [_listed(said.values, "or")] if said.values else []
    parts += [_range(said)] if said.low or said.high else []
    parts += ["no value (NULL)"] if said.nulls in ("too", "only") else []
    return " or ".join(parts) + ((", known" if parts else "known") if said.nulls == "not" else "")


def _of_items(name: str, chosen: tuple[str, ...]) -> str:
    before, last = ITEMS[name]
    if len(chosen) == 1:
        return f"{'not ' if name == 'none' else ''}{chosen[0]}"
    return f"{before}{_listed(chosen, last)}"


def _of(column: Column, said: Condition) -> str:
    return f"{column.name} {summary(said)}"


def _range(said: Condition) -> str:
    if said.low and said.high:
        return f"from {said.low} to {said.high}"
    return f"from {said.low}" if said.low else f"up to {said.high}"


def _listed(values: tuple[str, ...], last: str) -> str:
    shown = [*values[:MOST], *([f"{len(values) - MOST} more"] if len(values) > MOST else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {last} {shown[-1]}"
