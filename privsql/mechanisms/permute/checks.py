"""Check a permuted release, and what it reveals together with earlier ones.

The checks share nothing with the search: they read the published tables and the manifest, and use SQL and exact
numbers.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, fill, same_columns, table, temp_table
from privsql.errors import UsageError
from privsql.mechanisms.permute.parameters import CELL, Permute
from privsql.mechanisms.permute.scale import FLOATS, find_scale, narrow_condition, width_expression
from privsql.mechanisms.permute.tables import TABLES
from privsql.model.checks import Check, VerifiedBound, in_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles
    from privsql.mechanisms.base import LedgerRelease
    from privsql.mechanisms.permute.parameters import PermuteFacts
    from privsql.model.checks import CheckedRelease
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    PermutedRelease = CheckedRelease[Permute, PermuteFacts]

# One release ----------------------------------------------------------------------------------------------------------


def release_checks(release: PermutedRelease) -> list[Check]:
    """Return the checks that need no source: (k,e) in every group, agreement of tables, order of rows, and facts."""
    roles, query = release.roles, release.fill_query
    st, qit, values, sizes = map(release.view, ("st", "qit", "values", "sizes"))
    release.db.create_table("v_sizes", query("verify/bucket_sizes", fakes=exp.Literal.number(0)))
    whole = query("verify/cells_whole", qi=roles.qi_columns())
    return release.list_checks(
        {
            "every group has k sensitive values over a range of e": unfine_groups_query(st, roles, release.params),
            "values and their numbers of records agree with ST": query("verify/values_true"),
            "the values' rows lie in order": in_order(values, ["code", "records"], strict=True),
            "counts are positive": query("verify/counts_positive"),
            "QIT and ST agree on every group": query("verify/sizes_agree"),
            "groups are numbered": query("verify/numbered", table=sizes, number=column("bid")),
            "the shuffle gives every group its values of ST": query("verify/dealt_true", same_value="st v"),
            "QIT rows lie in canonical order": in_order(qit, ["bid", *roles.qi_keys, "code"], strict=False),
            "ST rows lie in canonical order, once each": in_order(st, ["bid", *roles.sa_keys], strict=True),
            "groups and error are as stated": _wrong_claims,
            **({"equal quasi-identifiers are in one cell": whole} if release.params.algorithm == "cells" else {}),
        }
    )


def unfine_groups_query(st: exp.Expr, roles: Roles, params: Permute) -> exp.Query:
    """Return the query for the groups that are not (k,e)-anonymous.

    Args:
        st: The relation of the sensitive table ST: group (bid), value (s0) and number of records (count).
        roles: The roles of the release's columns.
        params: The parameters, with k and e.
    """
    return fill("verify/groups_fine", {"st": st, "value": column(roles.sa_keys[0]), **_fineness_holes(roles, params)})


def _fineness_holes(roles: Roles, params: Permute) -> Holes:
    ends = narrow_condition(roles.sensitive[0], params.e, exp.column("low"), exp.column("high"))
    return {"k": exp.Literal.number(params.k), "narrow": exp.paren(ends)}


def _wrong_claims(release: PermutedRelease) -> list[str]:
    """Return the facts that differ from those recomputed from ST, one line each."""
    manifest, stated = release.manifest, release.facts
    widths, _ = _read_group_ranges(release)
    sizes = dict(release.db.rows(exp.select("bid", "size").from_(release.view("sizes"))))
    whole = sum(widths.values(), Fraction(0))
    records = sum(sizes.values())
    mean = sum((widths[bid] * size for bid, size in sizes.items()), Fraction(0)) / records
    result = {
        "loss": float(whole),
        "error": find_scale(manifest.sensitive, release.params.e).format_width(whole),
        "groups": len(widths),
        "smallest": min(sizes.values()),
        "largest": max(sizes.values()),
        "mean_width": float(mean),
    }
    least = min(CELL * release.params.k, records) if release.params.algorithm == "cells" else 0
    small = [f"a cell has {min(sizes.values())} records, fewer than {least}"] if min(sizes.values()) < least else []
    held, left = stated.held_back, stated.left_out  # only records that are held back may be left out
    others = [] if held == left <= (manifest.suppressed or 0) else [f"held back: {held}, left out: {left}"]
    return [*release.compare_facts(result), *release.compare_records(records), *others, *small]


def _read_group_ranges(release: PermutedRelease) -> tuple[dict[int, Fraction], int]:
    """Return (the exact range of values of every group, by its number; the fewest different values of any group)."""
    field = release.manifest.sensitive[0]
    width = width_expression(field, exp.column("low"), exp.column("high"))
    query = release.fill_query("verify/groups_wide", value=column(release.roles.sa_keys[0]), width=width)
    rows = release.db.rows(query)
    fewest = min((int(row[-1]) for row in rows), default=0)
    if field.type in FLOATS:
        return {bid: Fraction(high) - Fraction(low) for bid, low, high, *_ in rows}, fewest
    step = find_scale([field], release.params.e).sql_step
    return {bid: Fraction(result) * step for bid, _, _, result, _ in rows}, fewest


def measured_bounds(release: PermutedRelease) -> list[VerifiedBound]:
    """Return what a release has reached, with the bound that it promises: different values and range of every group.

    The first is the fewest different values of any group, with the bound k. The second is the narrowest range of any
    group, with the bound e.
    """
    params = release.params
    widths, fewest = _read_group_ranges(release)
    scale = find_scale(release.manifest.sensitive, params.e)
    narrowest = scale.format_width(min(widths.values(), default=Fraction(0)))
    return [
        VerifiedBound("different values in every group", f">= {params.k}", str(fewest), belief=False),
        VerifiedBound("range of every group", f">= {params.e}", narrowest, belief=False),
    ]


def source_checks(release: PermutedRelease, source: Records) -> list[Check]:
    """Return the checks that values, quasi-identifiers and the groups of values are those of the source.

    If some records are held back for a later release, values and quasi-identifiers may be missing, and groups are not
    compared.

    Args:
        release: The release.
        source: The records, which lie in relation ``records``.
    """
    roles, held = release.roles, release.facts.held_back
    source.sort_records()
    in_groups = release.fill_query(
        "verify/groups_true",
        records=temp_table("records"),
        value=roles.sa_columns(),
        qi_records=roles.qi_columns("r"),
        same_value="r sole",
        same_qi="expected found",
    )
    return release.list_checks(
        {
            "sensitive values are the source's": release.compare_values(column("count"), fewer=bool(held)),
            "quasi-identifiers are the source's": release.compare_people(source, "qit", fewer=bool(held)),
            **({} if held else {"records are in the groups of their values": in_groups}),
        }
    )


# Several releases together --------------------------------------------------------------------------------------------
# Several releases together are checked in pairs (Definition 5), and for every Boolean combination of groups.
#
# There are two views. The adversary has the published files alone, and matches groups by their quasi-identifiers and
# sensitive values. The publisher's ledger knows the group of every record, so nothing has to be matched.


def require_comparable(names: Sequence[str], manifests: Sequence[Manifest]) -> None:
    """Raise ``UsageError`` unless all releases are (k,e)-anonymous and have the same columns."""
    first = manifests[0]
    for name, manifest in zip(names, manifests, strict=True):
        if manifest.mechanism != first.mechanism:
            raise UsageError(f"against: {name} is made by {manifest.mechanism}, the other release by {first.mechanism}")
        if manifest.roles != first.roles:
            raise UsageError(
                f"{name} has other columns than {names[0]}: {manifest.roles.explain_difference(first.roles)}"
            )


def check_pairs(db: Relations, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Check]:
    """Return the checks that an adversary can't combine groups of two releases to break (k,e), for every pair.

    The adversary reads the published files. A combination is a difference or an intersection of groups.

    Args:
        db: The engine, in which release i is attached as database ``r<i>``.
        names: The names of the releases.
        manifests: Their manifests.
    """
    for i, manifest in enumerate(manifests):
        for name in ("qit", "st"):
            rows = TABLES[name].select_inside(manifest.roles, table(name, f"r{i}"))
            db.create_view(f"{name}{i}", rows)
    result = []
    for first, second in combinations(range(len(names)), 2):
        roles, params = manifests[second].roles, Permute.model_validate(manifests[second].parameters)
        tables: Holes = {"first_st": temp_table(f"st{first}"), "second_st": temp_table(f"st{second}")}
        holes: Holes = {
            "first": temp_table(f"qit{first}"),
            "second": temp_table(f"qit{second}"),
            "qi": roles.qi_columns(),
            "same_qi": same_columns("x", "y", roles.qi_keys),
            "same_value": same_columns("x", "y", roles.sa_keys),
        }
        db.create_table(f"shared_{first}_{second}", fill("against/shared", holes | tables))
        shared = temp_table(f"shared_{first}_{second}")
        tables |= {"value": roles.sa_columns("s")[0], **_fineness_holes(roles, params)}
        pairs = fill("against/overlapping", {"shared": shared}).subquery()
        ways = {
            "difference or intersection": fill("against/differences", {"pairs": pairs, **tables}),
            "subtracting earlier groups": fill("against/remainders", {"shared": shared, **tables}),
        }
        view = f"adversary's view of {names[first]} and {names[second]}"
        result += [
            Check(f"{view}: no breach by {way}", query, lambda: "groups whose members can be matched, each with each")
            for way, query in ways.items()
        ]
    return result


def check_records(
    db: Relations, releases: Sequence[LedgerRelease], known: exp.Query, manifest: Manifest
) -> list[Check]:
    """Return the checks that groups of several releases can't be combined to break (k,e), record by record.

    Differences and intersections are checked for every pair of releases, and then every combination of all releases.
    The publisher's ledger says in which group of each release a record was.

    Args:
        db: The engine.
        releases: The releases, with the group of each of their records.
        known: The query for (id, value) of all records.
        manifest: The manifest of the last release.
    """
    db.create_view("known", known)
    fine = _fineness_holes(manifest.roles, Permute.model_validate(manifest.parameters))
    result, a, b = [], column("a"), column("b")
    for first, second in combinations(releases, 2):
        name = f"joined_{first.number}_{second.number}"
        holes: Holes = {"first": first.members, "second": second.members, "known": temp_table("known")}
        db.create_table(name, fill("against/joined", holes))
        joined: Holes = {"joined": temp_table(name), **fine}
        breach = f"records of releases {first.number} and {second.number}: no breach by"
        result += [
            Check(f"{breach} intersection", fill("against/meetings", joined)),
            Check(f"{breach} earlier minus later", fill("against/leavings", {**joined, "own": a, "other": b})),
            Check(f"{breach} later minus earlier", fill("against/leavings", {**joined, "own": b, "other": a})),
        ]
    first, *others = releases
    db.create_table("atoms0", exp.select(column("id"), column("bid").as_("atom")).from_(first.members))
    for i, more in enumerate(others):
        refined = fill("against/refined", {"atoms": temp_table(f"atoms{i}"), "members": more.members})
        db.create_table(f"atoms{i + 1}", refined)
        db.drop(f"atoms{i}")
    atoms: Holes = {"atoms": temp_table(f"atoms{len(others)}"), "known": temp_table("known"), **fine}
    numbers = ", ".join(str(one.number) for one in releases)
    name = f"records of releases {numbers}: no breach by any combination"
    return [*result, Check(name, fill("against/atoms", atoms), lambda: "all records that the ledger knows")]
