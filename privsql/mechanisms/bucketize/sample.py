"""The records of some buckets of an open release as arrays, to learn from (``privsql.answers.learnt``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy
from sqlglot import exp

from privsql.answers.learnt.sample import MOST, Sample, comparable, encoded
from privsql.engine.sqlfiles import Holes, column, fill, same, table
from privsql.errors import EngineError
from privsql.mechanisms.bucketize.tables import some_buckets

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.through import Through


def sample(db: Relations, roles: Roles, setting: dict[str, int], through: Through) -> Sample:
    """Whole buckets with about ``MOST`` records, the same ones every time; all of a release that is no larger."""
    sizes, buckets = np.array([int(size) for size in setting]), np.array(list(setting.values()))
    share = min(1.0, MOST / float(sizes @ buckets))
    own, bid = roles.by_sa, roles.by_qi.column("bid")
    placed: Holes = {
        "qit": table("qit"), "bid": bid, "columns": comparable(roles), "filter": some_buckets(share, bid)
    }  # fmt: skip
    rows = db.arrow(fill("query/placed", placed))
    holes: Holes = {
        "st": exp.select(*own.read("bid", "count"), *roles.sa_in()).from_(table("st")).subquery(),
        "values": exp.select(*own.read("code"), *roles.sa_in()).from_(table("privsql_values")).subquery(),
        "same_value": same("s", "v", roles.sa_keys),
        "filter": some_buckets(share, column("bid", "s")),
    }
    listed = db.arrow(fill("query/composed", holes))
    bids, code, records = (listed[name].to_numpy() for name in ("bid", "code", "records"))
    known = np.unique(bids)
    scale = np.array([through.scale[int(size)] for size in setting])
    amounts = records * scale[np.searchsorted(np.cumsum(buckets), bids, side="right")]
    at = np.searchsorted(known, bids), code
    shown = scipy.sparse.coo_array((amounts, at), shape=(len(known), len(through.channel.records))).tocsr()
    numbers = rows["bid"].to_numpy()
    places = np.searchsorted(known, numbers).clip(max=len(known) - 1).astype(np.int32)
    if not np.array_equal(known[places], numbers):
        raise EngineError("the release is damaged: QIT has a bucket that ST does not list")
    names = (field.name for field in roles.quasi_identifiers)
    return Sample(places, shown, {name: encoded(rows[key]) for name, key in zip(names, roles.qi_keys, strict=True)})
