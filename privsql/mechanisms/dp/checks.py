"""Check noisy tables: budgets in exact fractions, scales, and stated facts."""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from privsql import dp_random
from privsql.mechanisms.dp.parameters import max_records, total_budget
from privsql.model.checks import BROKEN, Check, CheckedRelease

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from sqlglot import exp

    from privsql.mechanisms.dp.noisy_tables import NoisyTable

OPENDP_CHECK = "made with a known version of OpenDP"


def unknown_opendp(release: CheckedRelease[Any, Any]) -> list[str]:
    """Return the version of OpenDP if it is newer than this version of privsql knows."""
    stated, here = (str(v).split(".") for v in (release.facts.opendp, dp_random.NEWEST))
    known = all(part.isdigit() for part in stated[:2]) and len(stated) >= 2
    newest = known and [*map(int, stated[:2])] <= [*map(int, here[:2])]
    return [] if newest else [f"OpenDP {release.facts.opendp}"]


def wrong_facts(release: CheckedRelease[Any, Any], recomputed: Mapping[str, Any]) -> list[str]:
    """Return facts that differ from ``recomputed`` ones, or name another origin of the noise than the manifest."""
    manifest = release.manifest
    wrong = release.compare_facts({**recomputed, "noise": "seed" if manifest.randomness == "seed" else "opendp"})
    wrong += [] if manifest.algorithm == release.params.algorithm else [f"algorithm {manifest.algorithm}"]
    stated = manifest.persons.taken if manifest.persons is not None else None
    most = max_records(release.params)
    return wrong if stated == most or (stated is None and most == 1) else [*wrong, f"persons: {manifest.persons}"]


# Tables ---------------------------------------------------------------------------------------------------------------
# Checks of published noisy tables, and what their adversary learns: exact fractions and integers alone.


def check_published(
    release: CheckedRelease[Any, Any],
    what: str,
    read: Callable[[CheckedRelease[Any, Any]], tuple[Any, ...]],
    named: Mapping[str, Callable[..., list[str] | exp.Query]],
) -> list[Check]:
    """Return checks of what was published, which ``read`` reads once; where it can't be read, all have failed.

    ``named``: by name, functions that list what is wrong in the release and in what was read of it, or query it.
    """
    once = cache(partial(read, release))

    def run_check(check: Callable[..., list[str] | exp.Query], _: CheckedRelease[Any, Any]) -> list[str] | exp.Query:
        try:
            return check(release, *once())
        except BROKEN as error:
            return [f"the {what} can't be read: {error}"]

    return release.list_checks({name: partial(run_check, check) for name, check in named.items()})


def wrong_total_budget(
    release: CheckedRelease[Any, Any], tables: Sequence[NoisyTable], choices: Fraction = Fraction(0)
) -> list[str]:
    """Return what tables and choices of them, and other ``choices``, spend together, if that is not the budget."""
    total = sum((one.budget + (one.choice or 0) for one in tables), start=choices)
    due = total_budget(release.params)
    return [] if total == due else [f"spent {total}, not {due}"]


def wrong_table_scales(release: CheckedRelease[Any, Any], tables: Sequence[NoisyTable]) -> list[str]:
    """Return tables whose noise has another scale than the least double that spends no more than the stated budget."""
    widths: list[Any] = release.read_view("cliques")["scale"].to_pylist()
    pairs = enumerate(zip(tables, widths, strict=True))
    return [f"clique {k}: scale {width}" for k, (one, width) in pairs if width != one.law.scale(one.budget)]


def differ_from_due(
    tables: Sequence[NoisyTable], due: Sequence[tuple[tuple[int, ...], Fraction, Fraction | None]]
) -> list[str]:
    """Tables that are not those that are due: (columns, epsilon, what choosing them spent)."""
    result = [(one.columns, one.budget, one.choice) for one in tables]
    if len(result) != len(due):
        return [f"{len(result)} cliques, {len(due)} are due"]
    pairs = enumerate(zip(result, due, strict=True))
    return [
        f"clique {k}: {measured[1]} on {measured[0]}, due {other[1]} on {other[0]}"
        for k, (measured, other) in pairs
        if measured != other
    ]


def differ_from_specification(stated: pa.Table, due: pa.Table) -> list[str]:
    """Return that a table has other rows than the specification, if it has."""
    same = stated.to_pylist() == due.to_pylist()
    return [] if same else [f"stated {len(stated)} rows, the specification has {len(due)}"]
