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
from privsql.engine.sqlfiles import Holes, column, fill, same, table, temp
from privsql.errors import UsageError
from privsql.mechanisms.contract import stated
from privsql.mechanisms.permute.grouping import FLOATS, narrow, scale, width
from privsql.mechanisms.permute.parameters import Permute
from privsql.model.manifest import Check, Promised, differ, exceed, in_order, run, tally, values_true

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.attacks.suite import Several
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.contract import Kept
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


def pairwise(axis: Axis, ranks: Ints, releases: Ints) -> Iterator[Breach]:
    r"""Every breach of Definition 5: a\b, b\a or a∩b is not empty and not fine, a of an earlier, b of a later release.

    ``ranks`` (n,), ``releases`` (m, n): group of every record in every release, -1 where it is not in it.
    """
    for later in range(len(releases)):
        for earlier in range(later):
            for a in np.unique(releases[earlier][releases[earlier] >= 0]).tolist():
                for b in np.unique(releases[later][releases[later] >= 0]).tolist():
                    for kind, exposed in _exposed(axis, ranks, releases[earlier] == a, releases[later] == b):
                        yield Breach(kind, (earlier, later), (a, b), tuple(np.flatnonzero(exposed).tolist()))


Members = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def _exposed(axis: Axis, ranks: Ints, a: Members, b: Members) -> Iterator[tuple[Kind, Members]]:
    sets: tuple[tuple[Kind, Members], ...] = (
        ("earlier minus later", a & ~b),
        ("later minus earlier", b & ~a),
        ("intersection", a & b),
    )
    for kind, members in sets:
        if members.any() and not axis.fine(ranks[members]):
            yield kind, members


def closure(axis: Axis, ranks: Ints, releases: Ints) -> list[Ints]:
    """The atoms of the common refinement of all releases that are not fine, each as positions of its records.

    An atom holds the records that no release tells apart; every Boolean combination of groups is a union of atoms. If
    none is listed, whatever is subtracted and intersected is fine or empty. Records of no release are in no atom.
    """
    shown = np.flatnonzero((releases >= 0).any(axis=0))
    _, atom = np.unique(releases[:, shown], axis=1, return_inverse=True)
    order = np.argsort(atom, kind="stable")
    cuts = np.flatnonzero(np.diff(atom[order])) + 1
    members = np.split(shown[order], cuts) if len(shown) else []
    return [found for found in members if not axis.fine(ranks[found])]


# Checks ---------------------------------------------------------------------------------------------------------------
# The checks of a (k,e)-anonymous release. They share nothing with the search: only the published tables, the manifest's
# claims, SQL, and exact numbers.

SQL: tuple[str, ...] = ("core/", "permute/", "verify/")  # what makes and checks a release


class Facts(BaseModel):
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


def read(manifest: Manifest) -> Permute:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    asked = stated(manifest, Facts, Permute, "groups")
    scale(manifest.sensitive, asked.e)
    return asked


def checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    roles, asked = manifest.roles, read(manifest)
    _name_tables(db, manifest, database)
    st, qit, values, sizes = temp("v_st"), temp("v_qit"), temp("v_values"), temp("v_sizes")
    dealt: Holes = {"qit": qit, "st": st, "values": values, "same_value": same("st", "v", roles.sa_keys)}
    return [
        Check("every group has k sensitive values over a range of e", unfine(st, roles, asked)),
        Check("values and their records are those of ST", values_true(st, values, roles)),
        Check("the values' rows lie in order", in_order(values, ["code", "records"], strict=True)),
        Check("counts are positive", fill("verify/counts_positive", {"st": st, "sa": roles.sa()})),
        Check("QIT and ST agree on every group", fill("verify/sizes_agree", {"qit": qit, "sizes": sizes})),
        Check("groups are numbered", fill("verify/numbered", {"table": sizes, "number": column("bid")})),
        Check("the shuffle deals out the values of ST", fill("verify/dealt_true", dealt)),
        Check("QIT rows lie in canonical order", in_order(qit, ["bid", *roles.qi_keys, "code"], strict=False)),
        Check("ST rows lie in canonical order, once each", in_order(st, ["bid", *roles.sa_keys], strict=True)),
        Check("groups and error are as stated", lambda: _claims(db, manifest, asked)),
    ]


def unfine(st: exp.Expr, roles: Roles, asked: Permute) -> exp.Query:
    """Groups of ``st``(bid, s0, count) that are not (k,e)-anonymous."""
    ends = narrow(roles.sensitive[0], asked.e, exp.column("low"), exp.column("high"))
    holes: Holes = {
        "st": st,
        "value": column(roles.sa_keys[0]),
        "k": exp.Literal.number(asked.k),
        "narrow": exp.paren(ends),
    }
    return fill("verify/groups_fine", holes)


def _name_tables(db: Relations, manifest: Manifest, database: str | None) -> None:
    """Give the release's tables internal names: v_qit, v_st, v_values, with v_sizes."""
    roles, own = manifest.roles, manifest.roles.by_sa
    db.view("v_qit", exp.select(*roles.qi_in(), *roles.by_qi.read("bid", "code")).from_(table("qit", database)))
    db.view("v_st", exp.select(*roles.sa_in(), *own.read("bid", "count")).from_(table("st", database)))
    listed = exp.select(*own.read("code"), *roles.sa_in(), *own.read("records"))
    db.view("v_values", listed.from_(table("privsql_values", database)))
    db.make("v_sizes", fill("verify/bucket_sizes", {"st": temp("v_st"), "fakes": exp.Literal.number(0)}))


def _claims(db: Relations, manifest: Manifest, asked: Permute) -> list[str]:
    """Recompute what the manifest states from ST."""
    field, stated = manifest.sensitive[0], manifest.facts
    widths, _ = _groups(db, manifest, asked)
    sizes = dict(db.rows(exp.select("bid", "size").from_(temp("v_sizes"))))
    whole = sum(widths.values(), Fraction(0))
    records = sum(sizes.values())
    mean = sum((widths[bid] * size for bid, size in sizes.items()), Fraction(0)) / records
    found = {
        "loss": float(whole),
        "error": scale([field], asked.e).shown(whole),
        "groups": len(widths),
        "smallest": min(sizes.values()),
        "largest": max(sizes.values()),
        "mean_width": float(mean),
    }
    wrong = [f"{key}: stated {stated[key]}, found {actual}" for key, actual in found.items() if stated[key] != actual]
    counted = [] if records == manifest.published else [f"published: stated {manifest.published}, found {records}"]
    held, left = stated["held_back"], stated["left_out"]  # nobody else is left out
    others = [] if held == left <= (manifest.suppressed or 0) else [f"held back: {held}, left out: {left}"]
    return wrong + counted + others


def _groups(db: Relations, manifest: Manifest, asked: Permute) -> tuple[dict[int, Fraction], int]:
    """The exact range of every group, and the fewest different values of one."""
    field, value = manifest.sensitive[0], column(manifest.roles.sa_keys[0])
    ends = width(field, exp.column("low"), exp.column("high"))
    rows = db.rows(fill("verify/groups_wide", {"st": temp("v_st"), "value": value, "width": ends}))
    fewest = min((int(row[-1]) for row in rows), default=0)
    if field.type in FLOATS:
        return {bid: Fraction(high) - Fraction(low) for bid, low, high, *_ in rows}, fewest
    step = scale([field], asked.e).sql_step
    return {bid: Fraction(found) * step for bid, _, _, found, _ in rows}, fewest


def bounds(db: Relations, manifest: Manifest) -> list[Promised]:
    """The different values and the range of the groups that have least of them."""
    asked = read(manifest)
    widths, fewest = _groups(db, manifest, asked)
    narrowest = scale(manifest.sensitive, asked.e).shown(min(widths.values(), default=Fraction(0)))
    return [
        Promised("different values of every group", f">= {asked.k}", str(fewest), belief=False),
        Promised("range of every group", f">= {asked.e}", narrowest, belief=False),
    ]


def long_checks(manifest: Manifest) -> list[Check]:  # noqa: ARG001 (all mechanisms take it)
    """Nothing is left to ``verify`` alone."""
    return []


def source_checks(db: Relations, manifest: Manifest, source: Records, asked: Permute) -> list[Check]:  # noqa: ARG001
    """The checks against the source, prepared as ``records``, after ``checks`` has named the release's tables."""
    roles = manifest.roles
    holes: Holes = {
        "records": temp("records"),
        "qit": temp("v_qit"),
        "st": temp("v_st"),
        "value": roles.sa(),
        "qi": roles.qi(),
        "qi_records": roles.qi("r"),
        "qi_expected": roles.qi("expected"),
        "same_value": same("r", "sole", roles.sa_keys),
        "same_qi": same("expected", "found", roles.qi_keys),
    }
    compared = exceed if manifest.facts["held_back"] else differ  # who is held back is not in the release
    sensitive = compared(
        roles.sa(), tally(temp("records"), roles.sa()), tally(temp("v_st"), roles.sa(), column("count"))
    )
    quasi = compared(roles.qi(), tally(temp("records"), roles.qi()), tally(temp("v_qit"), roles.qi()))
    found = [
        Check("parameters are those of the specification", lambda: _as_asked(read(manifest), asked)),
        Check("sensitive values are the source's", sensitive),
        Check("quasi-identifiers are the source's", quasi),
    ]
    if not manifest.facts["held_back"]:
        found.append(Check("records are in the groups of their values", fill("verify/groups_true", holes)))
    return found


def _as_asked(stated: Permute, asked: Permute) -> list[str]:
    pairs = (
        ("k", stated.k, asked.k),
        ("e", stated.e.amount, asked.e.amount),
        ("algorithm", stated.algorithm, asked.algorithm),
    )
    return [f"{name}: stated {found}, asked for {wanted}" for name, found, wanted in pairs if found != wanted]


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
            raise UsageError(f"{name} has other columns than {names[0]}: {manifest.roles.unlike(first.roles)}")


def published(db: Relations, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Check]:
    """The adversary's view of every pair; release i is attached as database ``r<i>``."""
    for i, manifest in enumerate(manifests):
        roles = manifest.roles
        db.view(f"qit{i}", exp.select(*roles.qi_in(), *roles.by_qi.read("bid")).from_(table("qit", f"r{i}")))
        listed = exp.select(*roles.sa_in(), *roles.by_sa.read("bid", "count"))
        db.view(f"st{i}", listed.from_(table("st", f"r{i}")))
    found = []
    for first, second in combinations(range(len(names)), 2):
        found += _pair_of_files(db, manifests[second], names, (first, second))
    return found


def _pair_of_files(db: Relations, manifest: Manifest, names: Sequence[str], pair: tuple[int, int]) -> list[Check]:
    roles, (first, second) = manifest.roles, pair
    both = f"{names[first]} and {names[second]}"
    holes: Holes = {
        "first": temp(f"qit{first}"),
        "second": temp(f"qit{second}"),
        "first_st": temp(f"st{first}"),
        "second_st": temp(f"st{second}"),
        "qi": roles.qi(),
        "same_qi": same("x", "y", roles.qi_keys),
        "same_value": same("x", "y", roles.sa_keys),
    }
    db.make(f"shared_{first}_{second}", fill("against/shared", holes))
    shared = temp(f"shared_{first}_{second}")
    tables: Holes = {"first_st": temp(f"st{first}"), "second_st": temp(f"st{second}"), "value": roles.sa("s")[0]}
    pairs = fill("against/overlapping", {"shared": shared}).subquery()
    differences = fill("against/differences", {"pairs": pairs, **tables, **_condition(manifest)})
    remainders = fill("against/remainders", {"shared": shared, **tables, **_condition(manifest)})
    return [
        Check(f"adversary's view of {both}: differences and intersections", differences),
        Check(f"adversary's view of {both}: what is left without the earlier groups", remainders),
    ]


def _condition(manifest: Manifest) -> Holes:
    asked = read(manifest)
    ends = narrow(manifest.sensitive[0], asked.e, exp.column("low"), exp.column("high"))
    return {"k": exp.Literal.number(asked.k), "narrow": exp.paren(ends)}


def by_record(db: Relations, releases: Sequence[Kept], known: exp.Query, manifest: Manifest) -> list[Check]:
    """The records' view of every pair of ``releases`` and of all; ``known``: (id, value) of all records."""
    db.view("known", known)
    found = []
    for first, second in combinations(releases, 2):
        found += _pair(db, first, second, manifest)
    first, *others = releases
    db.make("atoms0", exp.select(column("id"), column("bid").as_("atom")).from_(first.members))
    for i, more in enumerate(others):
        db.make(f"atoms{i + 1}", fill("against/refined", {"atoms": temp(f"atoms{i}"), "members": more.members}))
        db.drop(f"atoms{i}")
    atoms: Holes = {"atoms": temp(f"atoms{len(others)}"), "known": temp("known"), **_condition(manifest)}
    numbers = ", ".join(str(one.number) for one in releases)
    return [*found, Check(f"records of releases {numbers}: every combination", fill("against/atoms", atoms))]


def _pair(db: Relations, first: Kept, second: Kept, manifest: Manifest) -> list[Check]:
    name = f"joined_{first.number}_{second.number}"
    holes: Holes = {
        "first": first.members,
        "second": second.members,
        "known": temp("known"),
    }
    db.make(name, fill("against/joined", holes))
    joined, fine = {"joined": temp(name)}, _condition(manifest)
    both, a, b = f"records of releases {first.number} and {second.number}", exp.column("a"), exp.column("b")
    return [
        Check(f"{both}: intersections", fill("against/meetings", {**joined, **fine})),
        Check(f"{both}: earlier minus later", fill("against/leavings", {**joined, **fine, "own": a, "other": b})),
        Check(f"{both}: later minus earlier", fill("against/leavings", {**joined, **fine, "own": b, "other": a})),
    ]


def attack_together(given: Several) -> list[Finding]:
    """Differences and intersections of groups (Definition 5), as an adversary finds them in the files."""
    checks = run(given.db, published(given.db, given.names, given.manifests))
    failed = [check for check in checks if not check.ok]
    return [
        Finding(
            DIFFERENCES,
            DIFFERENCES_KNOW,
            promised=given.manifests[0].algorithm == "nested",
            attacked=len(checks),
            unit="ways to combine",
            leaks=bool(failed),
            notes=tuple(f"{check.name}: {check.violations}" for check in failed),
        )
    ]
