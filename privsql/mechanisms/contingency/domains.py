"""The values of every column and their taxonomy, as the specification has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.engine.sqlfiles import all_rows, column, fill, named, temp
from privsql.errors import UsageError
from privsql.mechanisms.contingency.diffpart.taxonomy import Taxonomy, assembled, grouped, stated
from privsql.mechanisms.contingency.diffpart.tree import Cells
from privsql.mechanisms.contingency.parameters import Values
from privsql.model.listing import listed

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.engine.roles import Field
    from privsql.mechanisms.contingency.parameters import Contingency
    from privsql.mechanisms.noisytree.tree import Ints
    from privsql.model.records import Records

SHOWN = 3  # unknown values that a message names


@dataclass(frozen=True)
class Column:
    """A column's m ``values`` in its own type and as text (``labels``), the names of the inner nodes, and the parents.

    Nodes are the values, then the inner nodes; a context-free taxonomy has no names for these.
    """

    values: pa.Array
    labels: tuple[str, ...]
    inner: tuple[str | None, ...]
    parents: Ints


@dataclass(frozen=True)
class Domains:
    """All columns, and their taxonomies in one."""

    columns: tuple[Column, ...]
    taxonomy: Taxonomy

    @property
    def names(self) -> list[str | None]:
        """The text of every node of the taxonomy, None where it has none."""
        return [name for one in self.columns for name in (*one.labels, *one.inner)]


def read(db: Relations, source: Records, asked: Contingency) -> Domains:
    """The domains of a prepared source; ``UsageError`` for a taxonomy that is none."""
    roles = source.roles
    columns = tuple(_column(db, *pair, asked) for pair in zip(roles.sensitive, roles.sa_keys, strict=True))
    sizes = [len(one.parents) for one in columns]
    first = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
    parents = np.concatenate([one.parents for one in columns])
    parents = np.where(parents < 0, -1, parents + first)
    return Domains(columns, assembled(np.repeat(np.arange(len(columns)), sizes), parents))


def _column(db: Relations, field: Field, key: str, asked: Contingency) -> Column:
    domain = asked.domain(field.name) or Values(data=True)
    inner: list[str] = []
    parents: Ints | None = None
    if domain.taxonomy is not None:
        values, inner, parents = stated(_pairs(db, domain.taxonomy, field.name), field.name)
        domain = Values(items=tuple(values))
    occurring = exp.select(named(column(key), "item")).from_(temp("domain"))
    try:
        labels = listed(db, domain, field.type, occurring)
    except UsageError as error:
        raise UsageError(f"mechanism.domains.{field.name}: {error}") from error
    found = db.arrow(all_rows(temp("universe")).order_by("code"))["item"].combine_chunks()
    db.drop("universe")
    if parents is None:
        parents = grouped(len(labels), asked.fan_out)
    return Column(found, labels, tuple(inner) or (None,) * (len(parents) - len(labels)), parents)


def _pairs(db: Relations, query: str, name: str) -> list[tuple[str, str | None]]:
    """The rows (value, parent) of a publisher's taxonomy, as text."""
    db.own("given", query)
    fields = db.fields(temp("given"))
    if len(fields) != 2:
        raise UsageError(f"mechanism.domains.{name}: a taxonomy has two columns, value and parent, not {len(fields)}")
    texts = [exp.cast(column(field.name), "VARCHAR") for field in fields]
    rows = [(value, parent) for value, parent in db.rows(exp.select(*texts).from_(temp("given")))]
    db.drop("given")
    if any(value is None for value, _ in rows):
        raise UsageError(f"mechanism.domains.{name}: the taxonomy holds NULL as a value")
    return rows


def cells(db: Relations, source: Records, domains: Domains) -> Cells:
    """The source's different cells; ``UsageError`` that names values outside their domain."""
    roles = source.roles
    texts = [named(exp.cast(column(key), "VARCHAR"), key) for key in roles.sa_keys]
    rows = db.arrow(fill("core/domain_labels", {"domain": temp("domain"), "labels": texts}))
    nodes = []
    for number, (field, key) in enumerate(zip(roles.sensitive, roles.sa_keys, strict=True)):
        known = domains.columns[number].labels
        found = pc.index_in(rows[key].combine_chunks(), value_set=pa.array(known, pa.string()))
        if found.null_count:
            strange = rows[key].filter(pc.is_null(found)).unique().to_pylist()
            shown = ", ".join(map(repr, sorted(strange)[:SHOWN]))
            more = f" and {len(strange) - SHOWN} more" if len(strange) > SHOWN else ""
            raise UsageError(
                f"column {field.name!r} holds {shown}{more}, not among its values; add them to "
                f"mechanism.domains.{field.name}, or leave their records out in source.query"
            )
        nodes.append(domains.taxonomy.values(number)[found.to_numpy()])
    return Cells(np.stack(nodes, axis=1), rows["records"].to_numpy().astype(np.int64))
