"""What several (k,e)-anonymous releases tell together: Definition 5 pair by pair, and every Boolean combination.

Two views. The adversary's: from the published files alone, groups are matched by multisets of quasi-identifiers and
sensitive values. The records': the publisher's ledger tells who is where, so nothing is guessed.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.attacks.finding import Finding
from privsql.engine.sqlfiles import Holes, column, fill, same, table, temp
from privsql.errors import UsageError
from privsql.mechanisms.permute.checks import read
from privsql.mechanisms.permute.scale import narrow
from privsql.model.checks import Check, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.attacks.suite import Several
    from privsql.engine.database import Relations
    from privsql.mechanisms.contract import Kept
    from privsql.model.manifest import Manifest
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


def attack(given: Several) -> list[Finding]:
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
