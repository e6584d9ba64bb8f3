"""What a question sees of a release, as arrays: the sets of records that it distinguishes, and which values count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.answers.learnt.prior import DEGREES
from privsql.answers.question import CountQuery, group_terms, select_terms
from privsql.answers.reconstruct import reconstruct
from privsql.engine.sqlfiles import Holes, column, every, fill, table, temp
from privsql.model.estimate import same_nan

if TYPE_CHECKING:
    from privsql.answers.channel import Channel, Floats, Observation
    from privsql.answers.learnt.prior import Taught
    from privsql.answers.reconstruct import Posterior
    from privsql.engine.database import Relations

FEWEST_DEGREES = 4  # of freedom, where there are hardly any values


@dataclass(frozen=True)
class Observed:
    """The sets of records that a question distinguishes.

    ``keys`` (G,): values of the groups' and terms' expressions; ``observed`` (G, k): e; ``amounts`` (G, k): e weighted
    by what is to be added up.
    """

    keys: list[tuple[Any, ...]]
    observed: Floats
    amounts: Floats


@dataclass(frozen=True)
class QuestionOn:
    """A question to an open release.

    ``records``: the published table with the quasi-identifiers; ``independent``: whether records were drawn
    independently (perturbed), or took their places without replacement. ``most`` (m,): records that each value can have
    at most (default: the channel's); ``uncertain`` (m,): variance of the channel's records where these are estimates;
    ``taught``: the prior that the release teaches, if any; ``code``: how the list of values calls their codes.
    """

    db: Relations
    query: CountQuery
    records: exp.Table
    through: Channel
    independent: bool = False
    most: Floats | None = None
    uncertain: Floats | None = None
    taught: Taught | None = None
    code: str = "code"

    @property
    def columns(self) -> set[str]:
        """The release's own columns by which the question selects and groups records."""
        query = self.query
        parts = [*query.filters["qi"], *(expression for _, expression in group_terms(query, "qi"))]
        names = {node.name for part in parts for node in part.find_all(exp.Column)}
        return names | {own for lookup in query.lookups for _, own in lookup.keys}

    def reconstruct(self, seen: Observation, functionals: Floats) -> Posterior:
        """The posterior by the prior that the release teaches, or else by the default one."""
        if self.taught is None:
            return reconstruct(self.through, seen, functionals)
        return self.taught.reconstruct(seen, functionals, self.columns)

    @property
    def degrees(self) -> float:
        """Of freedom behind a standard error: a strength is estimated from as many deviations as there are values."""
        return max(len(self.through.records) - 1, FEWEST_DEGREES) if self.taught is None else DEGREES

    @property
    def ceiling(self) -> Floats:
        """Records that each value can have at most (m,)."""
        return self.through.records if self.most is None else self.most

    def noise(self, share: Floats) -> Floats:
        """Weight of the noise for a share of all records (``privsql.answers.channel``)."""
        return share if self.independent else share * (1 - share)


def sets(asked: QuestionOn, rows: pa.Table, scale: Floats) -> Observed:
    """Rows (set, the groups and terms, place in e, pairs, amounts) as arrays; each counts ``scale`` (rows,)."""
    ranks = rows["set"].to_numpy()
    number = int(ranks.max(initial=-1)) + 1
    shape = (number, asked.through.mean.shape[1])
    observed, amounts = np.zeros(shape), np.zeros(shape)
    at = (ranks, rows["place"].to_numpy())
    np.add.at(observed, at, rows["pairs"].to_numpy().astype(np.float64) * scale)
    if asked.query.measure.amount is not None:
        np.add.at(amounts, at, added(rows["amounts"]) * scale)
    names = [name for name, _ in group_terms(asked.query, "qi")]
    _, first = np.unique(ranks, return_index=True)
    taken = rows.select(names).take(first).to_pylist() if names else [{}] * number
    return Observed([tuple(same_nan(row[name]) for name in names) for row in taken], observed, amounts)


def added(column: pa.ChunkedArray) -> Floats:
    """Sums of a column by set as doubles (rows,); where all that is added is NULL, 0."""
    return np.asarray(column.cast(pa.float64()).fill_null(0).to_numpy())


def chosen(asked: QuestionOn, seen: Observed, values: int) -> tuple[list[tuple[Any, ...]], Floats]:
    """The sensitive side's groups (F,), and which values count for each: (m, F), or (G, m, F) where sets differ."""
    db, query = asked.db, asked.query
    terms = group_terms(query, "sa")
    holes: Holes = {
        "values": table("privsql_values"),
        "code": column(asked.code),
        "terms": select_terms(query, "sa"),
        "filter": every(query.filters["sa"]),
    }
    listed = fill("query/chosen_values", holes)
    rows = [tuple(map(same_nan, row)) for row in db.rows(listed)]
    groups = len(terms) - len(query.terms["sa"])
    outputs = list(dict.fromkeys(row[1 : 1 + groups] for row in rows))
    rank = {output: f for f, output in enumerate(outputs)}
    place = {int(row[0]): rank[row[1 : 1 + groups]] for row in rows}
    if query.predicate is None:
        functionals = np.zeros((values, len(outputs)))
        for code, output in place.items():
            functionals[code, output] = 1
        return outputs, functionals
    names = [name for name, _ in group_terms(query, "qi")]
    columns = {name: pa.array([key[i] for key in seen.keys]) for i, name in enumerate(names) if name.startswith("q_")}
    db.put("sets", pa.table({"set": pa.array(range(len(seen.keys)), pa.int32()), **columns}))
    holes = {"sets": temp("sets"), "chosen": listed.subquery("chosen"), "predicate": query.predicate}
    cells = np.array(db.rows(fill("query/cells", holes)), dtype=np.int64).reshape(-1, 2)
    db.drop("sets")
    functionals = np.zeros((len(seen.keys), values, len(outputs)))
    functionals[cells[:, 0], cells[:, 1], [place[int(code)] for code in cells[:, 1]]] = 1
    return outputs, functionals


def dotted(values: Floats, functionals: Floats) -> Floats:
    """x^T n for values (G, m): (G, f)."""
    if functionals.ndim == 2:
        return np.asarray(values @ functionals)
    return np.asarray(np.einsum("gm,gmf->gf", values, functionals))
