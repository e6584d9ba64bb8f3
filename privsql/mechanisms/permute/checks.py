"""Check a permuted release and everything that it breaches together with earlier ones."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.attacks.scene import Finding
from privsql.engine.sqlfiles import Holes, Roles, column, fill, same_columns, table, temp_table
from privsql.errors import UsageError
from privsql.mechanisms.permute.grouping import FLOATS, find_scale, narrow_condition, width_expression
from privsql.mechanisms.permute.parameters import Permute, PermuteFacts
from privsql.model.manifest import QUASI, SENSITIVE, Check, ReleaseTable, VerifiedBound, in_order, run_checks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.attacks.suite import ReleaseSeries
    from privsql.engine.database import Relations
    from privsql.mechanisms.contract import LedgerRelease
    from privsql.model.manifest import CheckedRelease, Manifest
    from privsql.model.records import Records

# Checks ---------------------------------------------------------------------------------------------------------------
# The checks of a (k,e)-anonymous release. They share nothing with the search: only the published tables, the manifest's
# claims, SQL, and exact numbers.

SQL: tuple[str, ...] = ("core/", "permute/", "verify/")  # what makes and checks a release


def demand_number(manifest: Manifest, params: Permute) -> None:
    """``UsageError`` unless the sensitive column has a range like e."""
    find_scale(manifest.sensitive, params.e)


TABLES = {
    "qit": ReleaseTable((QUASI, "bid INTEGER", "code INTEGER")),
    "st": ReleaseTable(("bid INTEGER", SENSITIVE, "count INTEGER")),
    "privsql_values": ReleaseTable(("code INTEGER", SENSITIVE, "records BIGINT")),
}


def release_checks(release: CheckedRelease[Permute, PermuteFacts]) -> list[Check]:
    """Return the checks that need the release alone."""
    roles, query = release.roles, release.fill_query
    st, qit, values, sizes = map(release.view, ("st", "qit", "values", "sizes"))
    release.db.create_table("v_sizes", query("verify/bucket_sizes", fakes=exp.Literal.number(0)))
    return release.list_checks(
        {
            "every group has k sensitive values over a range of e": unfine_groups_query(st, roles, release.params),
            "values and their records are those of ST": query("verify/values_true"),
            "the values' rows lie in order": in_order(values, ["code", "records"], strict=True),
            "counts are positive": query("verify/counts_positive"),
            "QIT and ST agree on every group": query("verify/sizes_agree"),
            "groups are numbered": query("verify/numbered", table=sizes, number=column("bid")),
            "the shuffle deals out the values of ST": query("verify/dealt_true", same_value="st v"),
            "QIT rows lie in canonical order": in_order(qit, ["bid", *roles.qi_keys, "code"], strict=False),
            "ST rows lie in canonical order, once each": in_order(st, ["bid", *roles.sa_keys], strict=True),
            "groups and error are as stated": _wrong_claims,
        }
    )


def unfine_groups_query(st: exp.Expr, roles: Roles, params: Permute) -> exp.Query:
    """Groups of ``st``(bid, s0, count) that are not (k,e)-anonymous."""
    return fill("verify/groups_fine", {"st": st, "value": column(roles.sa_keys[0]), **_fineness_holes(roles, params)})


def _fineness_holes(roles: Roles, params: Permute) -> Holes:
    ends = narrow_condition(roles.sensitive[0], params.e, exp.column("low"), exp.column("high"))
    return {"k": exp.Literal.number(params.k), "narrow": exp.paren(ends)}


def _wrong_claims(release: CheckedRelease[Permute, PermuteFacts]) -> list[str]:
    """Return facts that differ from those recomputed from ST."""
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
    pairs = [(key, getattr(stated, key), actual) for key, actual in result.items()]
    wrong = [f"{key}: stated {was}, found {actual}" for key, was, actual in pairs if was != actual]
    counted = [] if records == manifest.published else [f"published: stated {manifest.published}, found {records}"]
    held, left = stated.held_back, stated.left_out  # nobody else is left out
    others = [] if held == left <= (manifest.suppressed or 0) else [f"held back: {held}, left out: {left}"]
    return wrong + counted + others


def _read_group_ranges(release: CheckedRelease[Permute, PermuteFacts]) -> tuple[dict[int, Fraction], int]:
    """Return the exact range of every group, and the fewest different values of one."""
    field = release.manifest.sensitive[0]
    width = width_expression(field, exp.column("low"), exp.column("high"))
    query = release.fill_query("verify/groups_wide", value=column(release.roles.sa_keys[0]), width=width)
    rows = release.db.rows(query)
    fewest = min((int(row[-1]) for row in rows), default=0)
    if field.type in FLOATS:
        return {bid: Fraction(high) - Fraction(low) for bid, low, high, *_ in rows}, fewest
    step = find_scale([field], release.params.e).sql_step
    return {bid: Fraction(result) * step for bid, _, _, result, _ in rows}, fewest


def measured_bounds(release: CheckedRelease[Permute, PermuteFacts]) -> list[VerifiedBound]:
    """Return the different values and the range of the groups that have least of them."""
    params = release.params
    widths, fewest = _read_group_ranges(release)
    scale = find_scale(release.manifest.sensitive, params.e)
    narrowest = scale.format_width(min(widths.values(), default=Fraction(0)))
    return [
        VerifiedBound("different values of every group", f">= {params.k}", str(fewest), belief=False),
        VerifiedBound("range of every group", f">= {params.e}", narrowest, belief=False),
    ]


def source_checks(release: CheckedRelease[Permute, PermuteFacts], source: Records, _params: Permute) -> list[Check]:
    """Return the checks against the source, relation ``records``; who is held back is not in the release."""
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
# What several (k,e)-anonymous releases tell together: Definition 5 pair by pair, and every Boolean combination.
#
# Two views. The adversary's: from the published files alone, groups are matched by multisets of quasi-identifiers and
# sensitive values. The records': the publisher's ledger tells who is where, so nothing is guessed.

DIFFERENCES = "difference of releases"
DIFFERENCES_KNOW = "another release of the same people; subtracts and intersects groups whose members it can match"


def comparable(names: Sequence[str], manifests: Sequence[Manifest]) -> None:
    """``UsageError`` unless all releases are (k,e)-anonymous over the same columns."""
    first = manifests[0]
    for name, manifest in zip(names, manifests, strict=True):
        if manifest.mechanism != first.mechanism:
            raise UsageError(f"against: {name} is made by {manifest.mechanism}, the other release by {first.mechanism}")
        if manifest.roles != first.roles:
            raise UsageError(
                f"{name} has other columns than {names[0]}: {manifest.roles.explain_difference(first.roles)}"
            )


def published(db: Relations, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Check]:
    """The adversary's view of every pair; release i is attached as database ``r<i>``."""
    for i, manifest in enumerate(manifests):
        for name in ("qit", "st"):
            rows = TABLES[name].select_inside(manifest.roles, table(name, f"r{i}"))
            db.create_view(f"{name}{i}", rows)
    result = []
    for first, second in combinations(range(len(names)), 2):
        result += _pair_of_files(db, manifests[second], names, (first, second))
    return result


def _pair_of_files(db: Relations, manifest: Manifest, names: Sequence[str], pair: tuple[int, int]) -> list[Check]:
    roles, (first, second) = manifest.roles, pair
    both = f"{names[first]} and {names[second]}"
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
    tables |= {"value": roles.sa_columns("s")[0]}
    tables |= _fineness_holes(roles, Permute.model_validate(manifest.parameters))
    pairs = fill("against/overlapping", {"shared": shared}).subquery()
    differences = fill("against/differences", {"pairs": pairs, **tables})
    remainders = fill("against/remainders", {"shared": shared, **tables})
    return [
        Check(f"adversary's view of {both}: no breach by difference or intersection", differences),
        Check(f"adversary's view of {both}: no breach by taking away earlier groups", remainders),
    ]


def by_record(db: Relations, releases: Sequence[LedgerRelease], known: exp.Query, manifest: Manifest) -> list[Check]:
    """The records' view of every pair of ``releases`` and of all; ``known``: (id, value) of all records."""
    db.create_view("known", known)
    fine = _fineness_holes(manifest.roles, Permute.model_validate(manifest.parameters))
    result = []
    for first, second in combinations(releases, 2):
        result += _pair_checks(db, first, second, fine)
    first, *others = releases
    db.create_table("atoms0", exp.select(column("id"), column("bid").as_("atom")).from_(first.members))
    for i, more in enumerate(others):
        refined = fill("against/refined", {"atoms": temp_table(f"atoms{i}"), "members": more.members})
        db.create_table(f"atoms{i + 1}", refined)
        db.drop(f"atoms{i}")
    atoms: Holes = {"atoms": temp_table(f"atoms{len(others)}"), "known": temp_table("known"), **fine}
    numbers = ", ".join(str(one.number) for one in releases)
    name = f"records of releases {numbers}: no breach by any combination"
    return [*result, Check(name, fill("against/atoms", atoms))]


def _pair_checks(db: Relations, first: LedgerRelease, second: LedgerRelease, fine: Holes) -> list[Check]:
    name = f"joined_{first.number}_{second.number}"
    holes: Holes = {"first": first.members, "second": second.members, "known": temp_table("known")}
    db.create_table(name, fill("against/joined", holes))
    joined: Holes = {"joined": temp_table(name), **fine}
    breach, a, b = f"records of releases {first.number} and {second.number}: no breach by", column("a"), column("b")
    return [
        Check(f"{breach} intersection", fill("against/meetings", joined)),
        Check(f"{breach} earlier minus later", fill("against/leavings", {**joined, "own": a, "other": b})),
        Check(f"{breach} later minus earlier", fill("against/leavings", {**joined, "own": b, "other": a})),
    ]


def attack_together(releases: ReleaseSeries) -> list[Finding]:
    """Differences and intersections of groups (Definition 5), as an adversary finds them in the files."""
    checks = run_checks(releases.db, published(releases.db, releases.names, releases.manifests))
    failed = [check for check in checks if not check.ok]
    return [
        Finding(
            DIFFERENCES,
            DIFFERENCES_KNOW,
            promised=releases.manifests[0].algorithm == "nested",
            attacked=len(checks),
            unit="ways to combine",
            leaks=bool(failed),
            notes=tuple(check.name.replace("no breach", f"{check.violations} breaches") for check in failed),
        )
    ]
