"""Check a permuted release and everything that it breaches together with earlier ones."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from sqlglot import exp

from privsql.attacks.scene import Finding
from privsql.engine.sqlfiles import Holes, column, fill, same_columns, table, temp_table
from privsql.errors import UsageError
from privsql.mechanisms.contract import read_stated_parameters
from privsql.mechanisms.permute.grouping import FLOATS, find_scale, narrow_condition, width_expression
from privsql.mechanisms.permute.parameters import Permute
from privsql.model.manifest import (
    Check,
    VerifiedBound,
    count_combinations,
    differing_combinations,
    exceeding_combinations,
    in_order,
    run_checks,
    values_true,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.attacks.suite import ReleaseSeries
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.contract import LedgerRelease
    from privsql.mechanisms.permute.grouping import Axis, Ints
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

# Breach ---------------------------------------------------------------------------------------------------------------
# What an adversary finds who has several releases: Definition 5 pair by pair, and every Boolean combination.
#
# The reference in its plainest form. All sets of records are compared as they are, in O(pairs of groups * records).

Kind = Literal["earlier minus later", "later minus earlier", "intersection"]


@dataclass(frozen=True)
class Breach:
    """Records that two groups of two releases together expose."""

    kind: Kind
    releases: tuple[int, int]
    groups: tuple[int, int]
    records: tuple[int, ...]  # positions


def find_pairwise_breaches(axis: Axis, ranks: Ints, releases: Ints) -> Iterator[Breach]:
    r"""Every breach of Definition 5: a\b, b\a or a∩b is not empty and not fine, a of an earlier, b of a later release.

    ``ranks`` (n,), ``releases`` (m, n): group of every record in every release, -1 where it is not in it.
    """
    for later in range(len(releases)):
        for earlier in range(later):
            for a in np.unique(releases[earlier][releases[earlier] >= 0]).tolist():
                for b in np.unique(releases[later][releases[later] >= 0]).tolist():
                    for kind, exposed in _exposed_records(axis, ranks, releases[earlier] == a, releases[later] == b):
                        yield Breach(kind, (earlier, later), (a, b), tuple(np.flatnonzero(exposed).tolist()))


Members = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def _exposed_records(axis: Axis, ranks: Ints, a: Members, b: Members) -> Iterator[tuple[Kind, Members]]:
    sets: tuple[tuple[Kind, Members], ...] = (
        ("earlier minus later", a & ~b),
        ("later minus earlier", b & ~a),
        ("intersection", a & b),
    )
    for kind, members in sets:
        if members.any() and not axis.is_fine(ranks[members]):
            yield kind, members


def find_closure_breaches(axis: Axis, ranks: Ints, releases: Ints) -> list[Ints]:
    """The atoms of the common refinement of all releases that are not fine, each as positions of its records.

    An atom holds the records that no release tells apart; every Boolean combination of groups is a union of atoms. If
    none is listed, whatever is subtracted and intersected is fine or empty. Records of no release are in no atom.
    """
    published = np.flatnonzero((releases >= 0).any(axis=0))
    _, atom = np.unique(releases[:, published], axis=1, return_inverse=True)
    order = np.argsort(atom, kind="stable")
    cuts = np.flatnonzero(np.diff(atom[order])) + 1
    members = np.split(published[order], cuts) if len(published) else []
    return [result for result in members if not axis.is_fine(ranks[result])]


# Checks ---------------------------------------------------------------------------------------------------------------
# The checks of a (k,e)-anonymous release. They share nothing with the search: only the published tables, the manifest's
# claims, SQL, and exact numbers.

SQL: tuple[str, ...] = ("core/", "permute/", "verify/")  # what makes and checks a release


class PermuteFacts(BaseModel):
    """What a release's manifest states of its groups."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    loss: float = Field(ge=0)
    error: str
    groups: int = Field(ge=1)
    smallest: int = Field(ge=1)
    largest: int = Field(ge=1)
    mean_width: float = Field(ge=0)
    held_back: int = Field(ge=0)
    left_out: int = Field(ge=0)


def read_parameters(manifest: Manifest) -> Permute:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    params = read_stated_parameters(manifest, PermuteFacts, Permute, "groups")
    find_scale(manifest.sensitive, params.e)
    return params


def release_checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    roles, params = manifest.roles, read_parameters(manifest)
    _name_tables(db, manifest, database)
    st, qit, values, sizes = temp_table("v_st"), temp_table("v_qit"), temp_table("v_values"), temp_table("v_sizes")
    dealt: Holes = {"qit": qit, "st": st, "values": values, "same_value": same_columns("st", "v", roles.sa_keys)}
    return [
        Check("every group has k sensitive values over a range of e", unfine_groups_query(st, roles, params)),
        Check("values and their records are those of ST", values_true(st, values, roles)),
        Check("the values' rows lie in order", in_order(values, ["code", "records"], strict=True)),
        Check("counts are positive", fill("verify/counts_positive", {"st": st, "sa": roles.sa_columns()})),
        Check("QIT and ST agree on every group", fill("verify/sizes_agree", {"qit": qit, "sizes": sizes})),
        Check("groups are numbered", fill("verify/numbered", {"table": sizes, "number": column("bid")})),
        Check("the shuffle deals out the values of ST", fill("verify/dealt_true", dealt)),
        Check("QIT rows lie in canonical order", in_order(qit, ["bid", *roles.qi_keys, "code"], strict=False)),
        Check("ST rows lie in canonical order, once each", in_order(st, ["bid", *roles.sa_keys], strict=True)),
        Check("groups and error are as stated", lambda: _wrong_claims(db, manifest, params)),
    ]


def unfine_groups_query(st: exp.Expr, roles: Roles, params: Permute) -> exp.Query:
    """Groups of ``st``(bid, s0, count) that are not (k,e)-anonymous."""
    ends = narrow_condition(roles.sensitive[0], params.e, exp.column("low"), exp.column("high"))
    holes: Holes = {
        "st": st,
        "value": column(roles.sa_keys[0]),
        "k": exp.Literal.number(params.k),
        "narrow": exp.paren(ends),
    }
    return fill("verify/groups_fine", holes)


def _name_tables(db: Relations, manifest: Manifest, database: str | None) -> None:
    """Give the release's tables internal names: v_qit, v_st, v_values, with v_sizes."""
    roles, by_sa = manifest.roles, manifest.roles.by_sa
    db.create_view(
        "v_qit", exp.select(*roles.qi_in(), *roles.by_qi.select_columns("bid", "code")).from_(table("qit", database))
    )
    db.create_view(
        "v_st", exp.select(*roles.sa_in(), *by_sa.select_columns("bid", "count")).from_(table("st", database))
    )
    listed = exp.select(*by_sa.select_columns("code"), *roles.sa_in(), *by_sa.select_columns("records"))
    db.create_view("v_values", listed.from_(table("privsql_values", database)))
    db.create_table("v_sizes", fill("verify/bucket_sizes", {"st": temp_table("v_st"), "fakes": exp.Literal.number(0)}))


def _wrong_claims(db: Relations, manifest: Manifest, params: Permute) -> list[str]:
    """Recompute what the manifest states from ST."""
    field, stated = manifest.sensitive[0], manifest.facts
    widths, _ = _read_group_ranges(db, manifest, params)
    sizes = dict(db.rows(exp.select("bid", "size").from_(temp_table("v_sizes"))))
    whole = sum(widths.values(), Fraction(0))
    records = sum(sizes.values())
    mean = sum((widths[bid] * size for bid, size in sizes.items()), Fraction(0)) / records
    result = {
        "loss": float(whole),
        "error": find_scale([field], params.e).format_width(whole),
        "groups": len(widths),
        "smallest": min(sizes.values()),
        "largest": max(sizes.values()),
        "mean_width": float(mean),
    }
    wrong = [f"{key}: stated {stated[key]}, found {actual}" for key, actual in result.items() if stated[key] != actual]
    counted = [] if records == manifest.published else [f"published: stated {manifest.published}, found {records}"]
    held, left = stated["held_back"], stated["left_out"]  # nobody else is left out
    others = [] if held == left <= (manifest.suppressed or 0) else [f"held back: {held}, left out: {left}"]
    return wrong + counted + others


def _read_group_ranges(db: Relations, manifest: Manifest, params: Permute) -> tuple[dict[int, Fraction], int]:
    """The exact range of every group, and the fewest different values of one."""
    field, value = manifest.sensitive[0], column(manifest.roles.sa_keys[0])
    ends = width_expression(field, exp.column("low"), exp.column("high"))
    rows = db.rows(fill("verify/groups_wide", {"st": temp_table("v_st"), "value": value, "width": ends}))
    fewest = min((int(row[-1]) for row in rows), default=0)
    if field.type in FLOATS:
        return {bid: Fraction(high) - Fraction(low) for bid, low, high, *_ in rows}, fewest
    step = find_scale([field], params.e).sql_step
    return {bid: Fraction(result) * step for bid, _, _, result, _ in rows}, fewest


def measured_bounds(db: Relations, manifest: Manifest) -> list[VerifiedBound]:
    """The different values and the range of the groups that have least of them."""
    params = read_parameters(manifest)
    widths, fewest = _read_group_ranges(db, manifest, params)
    narrowest = find_scale(manifest.sensitive, params.e).format_width(min(widths.values(), default=Fraction(0)))
    return [
        VerifiedBound("different values of every group", f">= {params.k}", str(fewest), belief=False),
        VerifiedBound("range of every group", f">= {params.e}", narrowest, belief=False),
    ]


def long_checks(manifest: Manifest) -> list[Check]:  # noqa: ARG001 (all mechanisms take it)
    """Nothing is left to ``verify`` alone."""
    return []


def source_checks(db: Relations, manifest: Manifest, source: Records, params: Permute) -> list[Check]:  # noqa: ARG001
    """Return the checks against the source, ``records``; ``release_checks`` has named the release's tables."""
    roles = manifest.roles
    holes: Holes = {
        "records": temp_table("records"),
        "qit": temp_table("v_qit"),
        "st": temp_table("v_st"),
        "value": roles.sa_columns(),
        "qi": roles.qi_columns(),
        "qi_records": roles.qi_columns("r"),
        "qi_expected": roles.qi_columns("expected"),
        "same_value": same_columns("r", "sole", roles.sa_keys),
        "same_qi": same_columns("expected", "found", roles.qi_keys),
    }
    compared = (
        exceeding_combinations if manifest.facts["held_back"] else differing_combinations
    )  # who is held back is not in the release
    sensitive = compared(
        roles.sa_columns(),
        count_combinations(temp_table("records"), roles.sa_columns()),
        count_combinations(temp_table("v_st"), roles.sa_columns(), column("count")),
    )
    quasi = compared(
        roles.qi_columns(),
        count_combinations(temp_table("records"), roles.qi_columns()),
        count_combinations(temp_table("v_qit"), roles.qi_columns()),
    )
    result = [
        Check(
            "parameters are those of the specification", lambda: _differ_from_spec(read_parameters(manifest), params)
        ),
        Check("sensitive values are the source's", sensitive),
        Check("quasi-identifiers are the source's", quasi),
    ]
    if not manifest.facts["held_back"]:
        result.append(Check("records are in the groups of their values", fill("verify/groups_true", holes)))
    return result


def _differ_from_spec(stated: Permute, params: Permute) -> list[str]:
    pairs = (
        ("k", stated.k, params.k),
        ("e", stated.e.amount, params.e.amount),
        ("algorithm", stated.algorithm, params.algorithm),
    )
    return [f"{name}: stated {result}, asked for {wanted}" for name, result, wanted in pairs if result != wanted]


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
            raise UsageError(
                f"{name} is made by {manifest.mechanism}; --against compares releases of {first.mechanism}"
            )
        if manifest.roles != first.roles:
            raise UsageError(
                f"{name} has other columns than {names[0]}: {manifest.roles.explain_difference(first.roles)}"
            )


def published(db: Relations, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Check]:
    """The adversary's view of every pair; release i is attached as database ``r<i>``."""
    for i, manifest in enumerate(manifests):
        roles = manifest.roles
        db.create_view(
            f"qit{i}", exp.select(*roles.qi_in(), *roles.by_qi.select_columns("bid")).from_(table("qit", f"r{i}"))
        )
        listed = exp.select(*roles.sa_in(), *roles.by_sa.select_columns("bid", "count"))
        db.create_view(f"st{i}", listed.from_(table("st", f"r{i}")))
    result = []
    for first, second in combinations(range(len(names)), 2):
        result += _pair_of_files(db, manifests[second], names, (first, second))
    return result


def _pair_of_files(db: Relations, manifest: Manifest, names: Sequence[str], pair: tuple[int, int]) -> list[Check]:
    roles, (first, second) = manifest.roles, pair
    both = f"{names[first]} and {names[second]}"
    holes: Holes = {
        "first": temp_table(f"qit{first}"),
        "second": temp_table(f"qit{second}"),
        "first_st": temp_table(f"st{first}"),
        "second_st": temp_table(f"st{second}"),
        "qi": roles.qi_columns(),
        "same_qi": same_columns("x", "y", roles.qi_keys),
        "same_value": same_columns("x", "y", roles.sa_keys),
    }
    db.create_table(f"shared_{first}_{second}", fill("against/shared", holes))
    shared = temp_table(f"shared_{first}_{second}")
    tables: Holes = {
        "first_st": temp_table(f"st{first}"),
        "second_st": temp_table(f"st{second}"),
        "value": roles.sa_columns("s")[0],
    }
    pairs = fill("against/overlapping", {"shared": shared}).subquery()
    differences = fill("against/differences", {"pairs": pairs, **tables, **_fineness_holes(manifest)})
    remainders = fill("against/remainders", {"shared": shared, **tables, **_fineness_holes(manifest)})
    return [
        Check(f"adversary's view of {both}: differences and intersections", differences),
        Check(f"adversary's view of {both}: what is left without the earlier groups", remainders),
    ]


def _fineness_holes(manifest: Manifest) -> Holes:
    params = read_parameters(manifest)
    ends = narrow_condition(manifest.sensitive[0], params.e, exp.column("low"), exp.column("high"))
    return {"k": exp.Literal.number(params.k), "narrow": exp.paren(ends)}


def by_record(db: Relations, releases: Sequence[LedgerRelease], known: exp.Query, manifest: Manifest) -> list[Check]:
    """The records' view of every pair of ``releases`` and of all; ``known``: (id, value) of all records."""
    db.create_view("known", known)
    result = []
    for first, second in combinations(releases, 2):
        result += _pair_checks(db, first, second, manifest)
    first, *others = releases
    db.create_table("atoms0", exp.select(column("id"), column("bid").as_("atom")).from_(first.members))
    for i, more in enumerate(others):
        db.create_table(
            f"atoms{i + 1}", fill("against/refined", {"atoms": temp_table(f"atoms{i}"), "members": more.members})
        )
        db.drop(f"atoms{i}")
    atoms: Holes = {
        "atoms": temp_table(f"atoms{len(others)}"),
        "known": temp_table("known"),
        **_fineness_holes(manifest),
    }
    numbers = ", ".join(str(one.number) for one in releases)
    return [*result, Check(f"records of releases {numbers}: every combination", fill("against/atoms", atoms))]


def _pair_checks(db: Relations, first: LedgerRelease, second: LedgerRelease, manifest: Manifest) -> list[Check]:
    name = f"joined_{first.number}_{second.number}"
    holes: Holes = {
        "first": first.members,
        "second": second.members,
        "known": temp_table("known"),
    }
    db.create_table(name, fill("against/joined", holes))
    joined, fine = {"joined": temp_table(name)}, _fineness_holes(manifest)
    both, a, b = f"records of releases {first.number} and {second.number}", exp.column("a"), exp.column("b")
    return [
        Check(f"{both}: intersections", fill("against/meetings", {**joined, **fine})),
        Check(f"{both}: earlier minus later", fill("against/leavings", {**joined, **fine, "own": a, "other": b})),
        Check(f"{both}: later minus earlier", fill("against/leavings", {**joined, **fine, "own": b, "other": a})),
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
            notes=tuple(f"{check.name}: {check.violations}" for check in failed),
        )
    ]
