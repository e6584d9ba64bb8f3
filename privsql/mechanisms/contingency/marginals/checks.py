"""The checks of marginals: exact fractions and integers of the published tables, and rows that fit them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.engine.names import fold
from privsql.engine.sqlfiles import all_rows, table, temp
from privsql.errors import UsageError
from privsql.mechanisms import private
from privsql.mechanisms.contingency import domains
from privsql.mechanisms.contingency.marginals.cliques import Rule
from privsql.mechanisms.contingency.marginals.rows import distance
from privsql.mechanisms.contingency.marginals.tables import DOMAINS, ROWS, codes_of, domains_table, read_domains
from privsql.mechanisms.contingency.parameters import Contingency, MarginalFacts
from privsql.mechanisms.contract import stated
from privsql.mechanisms.noisytables import checks as noisytables
from privsql.mechanisms.noisytables.model import Model
from privsql.mechanisms.noisytables.tables import read as read_tables
from privsql.model.checks import Check, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.noisytables.measured import Measured
    from privsql.model.checks import Promised
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

SQL: tuple[str, ...] = ("core/", "contingency/", "verify/")
CLOSE = 1e-6  # of figures that doubles come to


@dataclass(frozen=True)
class Published:
    """What a release holds: its parameters, its rule, its noisy tables and its model."""

    asked: Contingency
    rule: Rule
    tables: list[Measured]

    @cached_property
    def model(self) -> Model:
        """Fitted anew."""
        return Model(self.tables, self.rule.sizes)


def read(manifest: Manifest) -> Contingency:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    found = stated(manifest, MarginalFacts, Contingency, "marginals")
    names = {fold(field.name) for field in manifest.sensitive}
    if not names or manifest.roles.hold_sets or manifest.quasi_identifiers or names != set(map(fold, found.domains)):
        raise UsageError("its manifest states other columns than those of its domains")
    if found.algorithm != manifest.algorithm:
        raise UsageError("its manifest states two algorithms")
    return found


def checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    roles = manifest.roles
    noisytables.views(db, database, DOMAINS)
    db.view("v_rows", exp.select(*roles.sa_in(), *roles.by_sa.read("weight")).from_(table(ROWS, database)))
    named: dict[str, Callable[[Published], list[str]]] = {
        "tables and choices spend epsilon together": _overspent,
        "tables are those of the public rule": lambda found: noisytables.as_due(
            found.tables, found.rule.due(found.tables)
        ),
        "scales are those of the budgets": lambda found: noisytables.wrong_scales(db, found.tables),
        "domains are those of the parameters": partial(_wrong_domains, db, manifest),
        "facts are those of the tables": partial(_wrong_facts, manifest),
        "rows fit the tables": partial(_wrong_rows, db, manifest),
    }
    return [
        *noisytables.of_tables(partial(_published, db, manifest), named),
        Check("rows of domains lie in order", in_order(temp("v_domains"), ["place", "code"], strict=False)),
        Check("rows lie in order, once each", in_order(temp("v_rows"), roles.sa_keys, strict=True)),
        private.known_opendp(manifest),
    ]


def bounds(_db: Relations, manifest: Manifest) -> list[Promised]:
    """What all tables spend."""
    return private.bounds(read(manifest).epsilon)


def source_checks(db: Relations, manifest: Manifest, source: Records, asked: Contingency) -> list[Check]:
    """The checks against the source: of its records a private release tells nothing that could be checked."""
    return [
        Check("parameters are those of the specification", partial(private.as_asked, read(manifest), asked)),
        Check("domains are the specification's", partial(_other_domains, db, source, asked)),
    ]


def _overspent(found: Published) -> list[str]:
    return noisytables.overspent(found.tables, found.asked.epsilon)


def _published(db: Relations, manifest: Manifest) -> Published:
    asked, names = read(manifest), tuple(field.name for field in manifest.sensitive)
    sizes = read_domains(db.arrow(all_rows(temp("v_domains"))), len(names))
    tables = read_tables(db.arrow(all_rows(temp("v_cliques"))), db.arrow(all_rows(temp("v_marginals"))), names, sizes)
    return Published(asked, Rule(asked, names, sizes), tables)


def _wrong_domains(db: Relations, manifest: Manifest, found: Published) -> list[str]:
    """Columns whose published values are not those that the parameters list, if they do."""
    rows, wrong = db.arrow(all_rows(temp("v_domains"))).to_pylist(), []
    for place, field in enumerate(manifest.sensitive):
        given = found.asked.domain(field.name)
        own = [row for row in rows if row["place"] == place]
        if given is not None and given.bins is not None:
            column_ = domains.Column(field, None, (), given.bins)
            due = [row | {"place": place} for row in domains_table([column_]).to_pylist()]
            wrong += [] if own == due else [f"column {field.name}"]
            continue
        *values, other = (row["value"] for row in own)
        listed = values if given is None or given.items is None else list(given.items)
        same = values == listed if field.type == "VARCHAR" else len(values) == len(listed)
        same = same and None not in values and len(set(values)) == len(values) == found.rule.sizes[place] - 1
        if not same or other != domains.other_value(field.type, values):
            wrong.append(f"column {field.name}")
    return wrong


def _wrong_facts(manifest: Manifest, found: Published) -> list[str]:
    """Facts that are not those of the tables."""
    own = {
        "not_covered": found.asked.not_covered(field.name for field in manifest.sensitive),
        "estimated_records": estimated(found.model),
    }
    return private.wrong_facts(manifest, facts(found.rule, found.tables) | own)


def _wrong_rows(db: Relations, manifest: Manifest, found: Published) -> list[str]:
    """Whether the rows hold what is in no domain, or fit the tables otherwise than the facts say."""
    rows, model = db.arrow(all_rows(temp("v_rows"))), found.model
    weights = rows["weight"].to_numpy()
    if len(rows) != manifest.facts["synthetic"] or not np.isfinite(weights).all() or (weights < 0).any():
        return [f"{len(rows)} rows, stated {manifest.facts['synthetic']}; or a weight that is none"]
    codes = codes_of(db, manifest, temp("v_rows"), temp("v_domains"))
    if (codes < 0).any():
        return ["a row holds a value that is in no domain"]
    wrong = []
    if abs(float(weights.sum()) - model.total) > max(CLOSE * model.total, CLOSE):
        wrong.append(f"the rows weigh {weights.sum():.1f}, the tables {model.total:.1f}")
    apart, said = distance(model, codes, weights), manifest.facts["distance"]
    return wrong if abs(apart - said) <= CLOSE else [*wrong, f"distance: stated {said}, found {apart}"]


def facts(rule: Rule, tables: Sequence[Measured]) -> dict[str, Any]:
    """What the manifest states of the tables."""
    return {
        "values": sum(rule.sizes),
        "cliques": len(tables),
        "chosen": sum(one.choice is not None for one in tables),
        "cells": sum(one.counts.size for one in tables),
    }


def estimated(model: Model) -> float:
    """The number of records, as the manifest states it."""
    return round(model.total, 1)


def _other_domains(db: Relations, source: Records, asked: Contingency) -> list[str]:
    columns = domains.read(db, source, asked)
    expected = domains_table(columns).to_pylist()
    found = db.arrow(all_rows(temp("v_domains"))).to_pylist()
    return [] if found == expected else [f"stated {len(found)} values, the specification has {len(expected)}"]
