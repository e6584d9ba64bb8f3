"""What several (k,e)-anonymous releases tell together: Definition 5 pair by pair, and every Boolean combination.

Two views. The adversary's: from the published files alone, groups are matched by multisets of quasi-identifiers and
sensitive values. The records': the publisher's ledger tells who is where, so nothing is guessed.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, fill, same, table, temp
from privsql.errors import UsageError
from privsql.mechanisms.permute.scale import narrow
from privsql.mechanisms.registry import of
from privsql.model.checks import Check
from privsql.releases.ledger import LEDGER, Entry, known_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

KIND = "permute"


def comparable(names: Sequence[str], manifests: Sequence[Manifest]) -> None:
    """``UsageError`` unless all releases are (k,e)-anonymous over the same columns."""
    first = manifests[0]
    for name, manifest in zip(names, manifests, strict=True):
        if manifest.mechanism != KIND:
            raise UsageError(f"{name} is made by {manifest.mechanism}; --against compares releases of permute")
        if manifest.roles != first.roles:
            raise UsageError(f"{name} has other columns than {names[0]}")


def published_checks(db: Relations, names: Sequence[str], manifests: Sequence[Manifest]) -> list[Check]:
    """The adversary's view of every pair; release i is attached as database ``r<i>``."""
    for i, manifest in enumerate(manifests):
        roles = manifest.roles
        db.view(f"qit{i}", exp.select(*roles.qi_in(), column("bid")).from_(table("qit", f"r{i}")))
        db.view(f"st{i}", exp.select(*roles.sa_in(), column("bid"), column("count")).from_(table("st", f"r{i}")))
    found = []
    for first, second in combinations(range(len(names)), 2):
        found += _published(db, manifests[second], names, (first, second))
    return found


def _published(db: Relations, manifest: Manifest, names: Sequence[str], pair: tuple[int, int]) -> list[Check]:
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
    asked = of(KIND).read(manifest)
    ends = narrow(manifest.sensitive[0], asked.e, exp.column("low"), exp.column("high"))
    return {"k": exp.Literal.number(asked.k), "narrow": exp.paren(ends)}


def record_checks(db: Relations, ledger: Sequence[Entry], entries: Sequence[Entry], manifest: Manifest) -> list[Check]:
    """The records' view of every pair of ``entries`` and of all; the ledger is attached."""
    db.view("known", known_records(ledger, entries[-1], manifest.roles.sa_keys[0]))
    found = []
    for first, second in combinations(entries, 2):
        found += _pair(db, first, second, manifest)
    members = [table(f"groups_{entry.number}", LEDGER) for entry in entries]
    db.make("atoms0", exp.select(column("id"), column("bid").as_("atom")).from_(members[0]))
    for i, more in enumerate(members[1:]):
        db.make(f"atoms{i + 1}", fill("against/refined", {"atoms": temp(f"atoms{i}"), "members": more}))
        db.drop(f"atoms{i}")
    atoms: Holes = {"atoms": temp(f"atoms{len(members) - 1}"), "known": temp("known"), **_condition(manifest)}
    numbers = ", ".join(str(entry.number) for entry in entries)
    return [*found, Check(f"records of releases {numbers}: every combination", fill("against/atoms", atoms))]


def _pair(db: Relations, first: Entry, second: Entry, manifest: Manifest) -> list[Check]:
    name = f"joined_{first.number}_{second.number}"
    holes: Holes = {
        "first": table(f"groups_{first.number}", LEDGER),
        "second": table(f"groups_{second.number}", LEDGER),
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
