"""The proof of a release of totals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.engine.sqlfiles import column, temp_table
from privsql.errors import UsageError
from privsql.mechanisms.dp.checks import OPENDP_CHECK, unknown_opendp, wrong_facts
from privsql.model.checks import compare_rows, in_order

if TYPE_CHECKING:
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.manifest import Manifest
    from support.totals.parameters import NoisyTotalsFacts, Totals, TotalsFacts


def require_columns(manifest: Manifest) -> None:
    """Raise ``UsageError`` for quasi-identifiers and item sets: totals have neither."""
    if manifest.quasi_identifiers or manifest.roles.hold_sets:
        raise UsageError("its manifest states other columns than those of its totals")


def check_totals(release: CheckedRelease[Totals, TotalsFacts]) -> list[Check]:
    """Return the checks of exact totals."""
    small = column("records") < exp.Literal.number(release.params.least)
    return release.list_checks(
        {
            "every total has the fewest records that are allowed": exp.select("*").from_(_view(release)).where(small),
            "totals lie in order, once each": _order(release),
            "facts are those of the totals": _wrong_facts,
        }
    )


def check_noisy_totals(release: CheckedRelease[Totals, NoisyTotalsFacts]) -> list[Check]:
    """Return the checks of noisy totals."""
    return release.list_checks(
        {
            "totals lie in order, once each": _order(release),
            "facts are those of the totals": lambda one: wrong_facts(one, {"totals": len(_read(one))}),
            OPENDP_CHECK: unknown_opendp,
        }
    )


def compare_totals(release: CheckedRelease[Totals, TotalsFacts]) -> list[Check]:
    """Return the check that exact totals are those of the source."""
    source, published = ((rows, column("records")) for rows in (temp_table("domain"), _view(release)))
    return release.list_checks({"totals are the source's": compare_rows(release.roles.sa_columns(), source, published)})


def _view(release: CheckedRelease[Any, Any]) -> exp.Table:
    return release.view("totals")


def _read(release: CheckedRelease[Any, Any]) -> list[int]:
    return [int(row["records"]) for row in release.read_view("totals").to_pylist()]


def _order(release: CheckedRelease[Any, Any]) -> exp.Query:
    return in_order(_view(release), release.roles.sa_keys, strict=True)


def _wrong_facts(release: CheckedRelease[Totals, TotalsFacts]) -> list[str]:
    totals = _read(release)
    wrong = release.compare_facts({"totals": len(totals), "smallest": min(totals)})
    return [*wrong, *release.compare_records(sum(totals))]
