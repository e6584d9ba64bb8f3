"""What a manifest says, recomputed: from the release's tables where that is possible, else from its source.

What neither can tell is the publisher's word (``SECURITY.md`` lists it): which versions made the release, where its
randomness is from, what else was published, and how near to the optimum the search came.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql._version import __version__
from privsql.attacks.risk import SAMPLE, quick_learning_risk
from privsql.attacks.scene import ReleaseView
from privsql.engine import sqlfiles
from privsql.engine.sqlfiles import column, fill, is_null, some, table
from privsql.mechanisms.registry import of
from privsql.model.checks import Check
from privsql.model.manifest import Manifest
from privsql.noise import seed_key
from privsql.releases import orders
from privsql.releases.own import own_columns
from privsql.source.binning import coarser, in_bins

if TYPE_CHECKING:
    from privsql.attacks.risk import Risk
    from privsql.engine.database import Relations
    from privsql.model.checks import Promised
    from privsql.model.records import Records
    from privsql.source.spec import Spec

WHOLE = "columns in bins hold where bins begin, and columns of groups these"
LATER = {"orders"}  # entries that earlier versions did not have
SOMETIMES = {"own_columns", "bins", "groups", "persons", "place"}  # those that say nothing of most releases
NEAR = 0.001  # shares of records that differ by less may do so because of another machine's arithmetic


@dataclass(frozen=True)
class Told:
    """What the tables of a release tell: ``facts`` as in a manifest, what learning leads to, and the bounds."""

    facts: dict[str, Any]
    learning_risk: dict[str, float] | None
    bounds: list[Promised]

    def as_json(self) -> dict[str, Any]:
        """The facts, ``learning_risk`` and ``bounds``."""
        bounds = [bound.as_json() for bound in self.bounds]
        return self.facts | {"learning_risk": self.learning_risk, "bounds": bounds}

    def differs(self, manifest: Manifest) -> list[str]:
        """What is stated otherwise; by another version of privsql, what it states at all of the facts."""
        stated, ours = manifest.facts, made_here(manifest)
        wrong = [
            f"{key}: stated {stated.get(key)}"
            for key, found in self.facts.items()
            if not _same(stated.get(key), found) and (ours or stated.get(key) is not None)
        ]
        if ours and not _near(manifest.learning_risk, self.learning_risk):
            wrong.append(f"learning_risk: stated {manifest.learning_risk}, found {self.learning_risk}")
        return wrong


def made_here(manifest: Manifest) -> bool:
    """Whether this very version of privsql made the release, so that it must say what this version says."""
    return manifest.privsql == __version__


def learning_risk(db: Relations, manifest: Manifest, database: str) -> Risk | None:
    """The quick estimate of what learning from a release leads to; the same for the same release."""
    mechanism = of(manifest.mechanism)
    seen = ReleaseView(db, manifest, seed_key(1).stream("risk"), database, sample=SAMPLE)
    return quick_learning_risk(seen, mechanism.adversaries.quick, mechanism.advice)


def told(db: Relations, manifest: Manifest, database: str) -> Told:
    """What the tables tell, of a release whose checks hold."""
    mechanism, risk = of(manifest.mechanism), learning_risk(db, manifest, database)
    bounds = mechanism.bounds(db, manifest)
    return Told(mechanism.measured(db, manifest), risk.as_facts() if risk else None, bounds)


def checks(db: Relations, manifest: Manifest, database: str) -> list[Check]:
    """What a manifest must say whatever the mechanism, against itself and the tables."""
    coarse = [Check(WHOLE, partial(_within_bins, db, manifest, database))] if manifest.bins or manifest.groups else []
    return [
        *coarse,
        Check("SQL files are as stated", partial(_digests, manifest)),
        Check("the manifest says all that it should, and of every column", partial(_incomplete, manifest)),
        Check("NULL stands only where the stated policies let it", partial(_nulls, db, manifest, database)),
    ]


def source_checks(manifest: Manifest, source: Records, spec: Spec) -> list[Check]:
    """What a manifest says against the source and its specification, whatever the mechanism."""
    return [
        Check("suppressed records are as stated", partial(_suppressed, manifest, source)),
        Check("policies for NULL are those of the specification", partial(_policies, manifest, spec)),
        Check("bins and groups are those of the specification", partial(_coarser, manifest, spec)),
        Check("persons are as stated", lambda: _persons(manifest, source)),
        Check("labels are in the order of the source", lambda: orders.otherwise(manifest, source.roles.orders)),
    ]


def _digests(manifest: Manifest) -> list[str]:
    """The SQL that made the release, if this is the version of privsql that did."""
    if not made_here(manifest):
        return []
    present = sqlfiles.digests(of(manifest.mechanism).sql)
    wrong = [f"sql/{name}.sql differs" for name in present if manifest.sql.get(name) != present[name]]
    return wrong + [f"sql/{name}.sql is unknown" for name in sorted(manifest.sql.keys() - present.keys())]


def _incomplete(manifest: Manifest) -> list[str]:
    """Entries that are missing, columns without a policy, and parameters that are not written out as they are meant."""
    needed = set(Manifest.model_fields) - SOMETIMES - (set() if made_here(manifest) else LATER)
    wrong = [f"{name} is missing" for name in sorted(needed - manifest.model_fields_set)]
    columns = {field.name for field in (*manifest.quasi_identifiers, *manifest.sensitive)}
    wrong += [f"nulls: {name}" for name in sorted(columns ^ manifest.nulls.keys())]
    asked = of(manifest.mechanism).read(manifest).model_dump(mode="json", exclude_none=True)
    if manifest.algorithm != asked["algorithm"]:
        wrong.append(f"algorithm {manifest.algorithm}, asked for {asked['algorithm']}")
    if made_here(manifest) and asked != manifest.parameters:
        names = sorted(asked.keys() | manifest.parameters.keys())
        wrong += [f"parameters: {name}" for name in names if asked.get(name) != manifest.parameters.get(name)]
    return wrong


def _nulls(db: Relations, manifest: Manifest, database: str) -> list[str]:
    """Tables with a NULL in a column in which none is published."""
    without, wrong = {name for name, policy in manifest.nulls.items() if policy != "value"}, []
    for name, columns in of(manifest.mechanism).tables(manifest).items():
        own = {called for _, called, _ in own_columns(manifest)[name]}
        empty: list[exp.Expr] = [column(one).is_(exp.null()) for one, _ in columns if one in without - own]
        if empty and db.rows(fill("verify/holds_nulls", {"table": table(name, database), "empty": some(empty)})):
            wrong.append(f"{name} holds a NULL")
    return wrong


def _within_bins(db: Relations, manifest: Manifest, database: str) -> list[str]:
    """Columns of the tables that hold a value at which no bin begins, or one that is none of the groups."""
    fields, wrong = {field.name: field for field in manifest.quasi_identifiers}, []
    for name, columns in of(manifest.mechanism).tables(manifest).items():
        own = {called for _, called, _ in own_columns(manifest)[name]}
        for one in (one for one, _ in columns if one not in own and one in {*manifest.bins, *manifest.groups}):
            value, bins = column(one), manifest.bins.get(one)
            groups = [exp.Literal.string(group) for group in manifest.groups.get(one, ())]
            met = value.isin(*groups) if bins is None else value.eq(in_bins(fields[one], value, bins).value)
            outside = {"table": table(name, database), "filter": exp.and_(exp.not_(is_null(value)), exp.not_(met))}
            if db.rows(fill("core/matching", outside))[0][0]:
                wrong.append(f"{one} of {name} holds what is no bin or group")
    return wrong


def _suppressed(manifest: Manifest, source: Records) -> list[str]:
    stated = (manifest.records, manifest.published, manifest.suppressed)
    left_out = manifest.facts.get("left_out", 0)
    found = (source.source_records, source.records - left_out, source.suppressed + left_out)
    names = ("records", "published", "suppressed")
    return [
        f"{name}: stated {s}, the source has {f}"
        for name, s, f in zip(names, stated, found, strict=True)
        if s != f and s is not None
    ]


def _policies(manifest: Manifest, spec: Spec) -> list[str]:
    asked = {name: spec.columns.policy(name) for name in manifest.nulls}
    return [f"{name}: stated {policy}" for name, policy in manifest.nulls.items() if policy != asked[name]]


def _coarser(manifest: Manifest, spec: Spec) -> list[str]:
    asked = coarser(manifest.quasi_identifiers, spec.columns)
    stated = {"bins": manifest.bins, "groups": manifest.groups}
    return [f"{key} are stated otherwise" for key, found in stated.items() if found != asked[key]]


def _persons(manifest: Manifest, source: Records) -> list[str]:
    stated, found = (
        one.model_copy(update={"choice": None}) if one is not None else None
        for one in (manifest.persons, source.persons)
    )
    same = stated == found  # who has another key has checked something else
    return [] if same else [f"stated: {manifest.persons or 'nothing'}; the source: {source.persons or 'nothing'}"]


def _same(stated: object, found: object) -> bool:
    """Whether two facts are the same, floats but for ``NEAR``."""
    if isinstance(stated, dict) and isinstance(found, dict):
        return stated.keys() == found.keys() and all(_same(stated[key], found[key]) for key in found)
    if isinstance(stated, float) and isinstance(found, float):
        return abs(stated - found) <= NEAR
    return stated == found


def _near(stated: dict[str, float] | None, found: dict[str, float] | None) -> bool:
    """Whether two estimates are the same but for ``NEAR``."""
    if stated is None or found is None:
        return stated is found
    return stated.keys() == found.keys() and all(abs(stated[key] - found[key]) <= NEAR for key in found)
