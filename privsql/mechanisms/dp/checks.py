"""Check the noisy tables of a release: budgets in exact fractions, scales of noise, and stated facts."""

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
    """Return the version of OpenDP, the library of noise, if it is newer than this version of privsql knows.

    The list is empty if the version is known. A text that is no version number counts as unknown.
    """
    stated, here = (str(v).split(".") for v in (release.facts.opendp, dp_random.NEWEST))
    known = all(part.isdigit() for part in stated[:2]) and len(stated) >= 2
    newest = known and [*map(int, stated[:2])] <= [*map(int, here[:2])]
    return [] if newest else [f"OpenDP {release.facts.opendp}"]


def wrong_facts(release: CheckedRelease[Any, Any], recomputed: Mapping[str, Any]) -> list[str]:
    """Return the facts of the manifest that are wrong.

    The facts are compared with ``recomputed`` values. In addition, the stated origin of the noise, the algorithm and
    the number of records of a person must agree with the manifest and the parameters.
    """
    manifest = release.manifest
    wrong = release.compare_facts({**recomputed, "noise": "seed" if manifest.randomness == "seed" else "opendp"})
    wrong += [] if manifest.algorithm == release.params.algorithm else [f"algorithm {manifest.algorithm}"]
    stated = manifest.persons.taken if manifest.persons is not None else None
    most = max_records(release.params)
    return wrong if stated == most or (stated is None and most == 1) else [*wrong, f"persons: {manifest.persons}"]


def check_published(
    release: CheckedRelease[Any, Any],
    what: str,
    read: Callable[[], Any],
    named: Mapping[str, Callable[[Any], list[str] | exp.Query]],
) -> list[Check]:
    """Return checks that all need the same published tables, which are read only once.

    Args:
        release: The release.
        what: A word for what is read, used in the message of a failed check.
        read: Reads the published tables. It raises an error (one of ``BROKEN``) if they can't belong to a valid
            release.
        named: The checks by name. Each takes the result of ``read``, and returns a list of faults or a query for them.
    """
    once = cache(read)

    def run_check(check: Callable[[Any], list[str] | exp.Query], _: CheckedRelease[Any, Any]) -> list[str] | exp.Query:
        try:
            return check(once())
        except BROKEN as error:
            return [f"the {what} can't be read: {error}"]

    return release.list_checks({name: partial(run_check, check) for name, check in named.items()})


def wrong_total_budget(
    release: CheckedRelease[Any, Any], tables: Sequence[NoisyTable], choices: Fraction = Fraction(0)
) -> list[str]:
    """Return a fault if what the release spent does not add up to its budget; otherwise nothing.

    Args:
        release: The release.
        tables: The noisy tables, each with the budget of its counts and of choosing it.
        choices: The budget that was spent on anything besides these tables.
    """
    total = sum((one.budget + (one.choice or 0) for one in tables), start=choices)
    due = total_budget(release.params)
    return [] if total == due else [f"spent {total}, not {due}"]


def wrong_table_scales(release: CheckedRelease[Any, Any], tables: Sequence[NoisyTable]) -> list[str]:
    """Return the tables whose stated scale of noise is not the right one.

    The right scale is the smallest double with which a table spends no more than its stated budget.
    """
    pairs = zip(tables, release.read_view("cliques")["scale"].to_pylist(), strict=True)
    return [f"clique {k}: scale {at}" for k, (one, at) in enumerate(pairs) if at != one.law.scale(one.budget)]


def differ_from_due(
    tables: Sequence[NoisyTable], due: Sequence[tuple[tuple[int, ...], Fraction, Fraction | None]]
) -> list[str]:
    """Return the published tables that are not those that the parameters and earlier published tables require.

    A public rule decides which tables are published, and with which budgets. So anybody can repeat it.

    Args:
        tables: The published tables.
        due: For each required table its columns, its budget, and the budget of choosing it among others (None if it was
            not chosen).
    """
    if len(tables) != len(due):
        return [f"{len(tables)} cliques, {len(due)} are due"]
    return [
        f"clique {k}: {one.budget} on {one.columns}, due {spent} on {columns}"
        for k, (one, (columns, spent, choice)) in enumerate(zip(tables, due, strict=True))
        if (one.columns, one.budget, one.choice) != (columns, spent, choice)
    ]


def differ_from_specification(stated: pa.Table, due: pa.Table) -> list[str]:
    """Return a fault if a published table, such as that of listed values, does not follow from a specification.

    Args:
        stated: The published table.
        due: The table that the specification requires.
    """
    if stated.to_pylist() == due.to_pylist():
        return []
    return [f"stated {len(stated)} rows, the specification has {len(due)}"]
