"""The checks of bounds on sets of values: columns of a compound attribute, and groups. As ``checks``, they share
nothing with the search.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, fill, temp
from privsql.exact import text
from privsql.mechanisms.bucketize.beliefs import of_sets, together
from privsql.mechanisms.bucketize.groups.bounds import Bound, Part, bounds, put_members, stated_bounds, values_of
from privsql.mechanisms.bucketize.thresholds import bounds_of
from privsql.model.checks import Check, Promised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.parameters import Bucketize
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records


def checks(db: Relations, manifest: Manifest, asked: Bucketize) -> list[Check]:
    """That every bucket keeps the bounds, and that these are what the parameters ask for; none if there are none."""
    stated = stated_bounds(manifest.facts)
    if not stated and not asked.is_bounding:
        return []
    _put(db, stated)
    held = together(temp("v_st"), temp("v_values"), temp("v_members"), manifest.roles)
    holes: Holes = {"held": held, "sizes": temp("v_sizes"), "bounds": temp("v_bounds")}
    return [
        Check("every bucket obeys every bound on groups", fill("verify/bounds_hold", holes)),
        Check("bounds on groups follow from what was asked", lambda: _wrong(db, manifest, asked), lambda: _said(asked)),
    ]


def promised(db: Relations, manifest: Manifest) -> list[Promised]:
    """Every bound, and the largest share of a bucket that its values have."""
    found = of_sets(db, temp("v_st"), temp("v_values"), manifest.facts, manifest.roles)
    stated = stated_bounds(manifest.facts)
    return [Promised(one.name, text(one.threshold), text(most)) for one, most in zip(stated, found, strict=True)]


def source_checks(db: Relations, manifest: Manifest, source: Records, asked: Bucketize) -> list[Check]:
    """That the bounds are those that the specification has for the source."""
    stated = stated_bounds(manifest.facts)
    if not stated and not asked.is_bounding:
        return []
    wanted = bounds_of(db, source, asked)
    return [Check("bounds on groups are those of the specification", lambda: _differing(stated, wanted))]


def _put(db: Relations, stated: Sequence[Bound]) -> None:
    """Relations v_members(bound, code) and v_bounds(bound, name, numerator, denominator as text)."""
    put_members(db, "v_members", stated)
    texts = {
        "name": [one.name for one in stated],
        "numerator": [str(one.threshold.numerator) for one in stated],
        "denominator": [str(one.threshold.denominator) for one in stated],
    }
    columns = {key: pa.array(column, pa.string()) for key, column in texts.items()}
    db.put("v_bounds", pa.table({"bound": np.arange(len(stated)), **columns}))


def _said(asked: Bucketize) -> str:
    queried = [name for name, threshold in asked.components.items() if threshold.query is not None]
    return f"queries gave those of {', '.join(queried)}: compared only where the source is given" if queried else ""


def _wrong(db: Relations, manifest: Manifest, asked: Bucketize) -> list[str]:
    """Recompute the sets and their thresholds from the manifest's parameters and the listed values.

    What a query gave for a column is as stated, and only seen to lie in (0, 1].
    """
    listed = exp.select("records").from_(temp("v_values")).order_by("code")
    counts = [int(row[0] or 0) for row in db.rows(listed)]
    if not counts or min(counts) <= 0:
        return ["a value has no records"]
    stated = stated_bounds(manifest.facts)
    given = {(one.name, one.members): one.threshold for one in stated}

    def query(part: Part, _: str) -> list[Fraction]:
        return [given.get((part.bound(rank), part.members({rank})), Fraction(1)) for rank in range(len(part.labels))]

    values = values_of(db, temp("v_values"), manifest.roles, counts)
    outside = [f"{one.name}: threshold {one.threshold} is above 1" for one in stated if one.threshold > 1]
    return _differing(stated, bounds(asked, values, query)) + outside


def _differing(stated: Sequence[Bound], wanted: Sequence[Bound]) -> list[str]:
    """Bounds that are stated and not wanted, and the other way round."""
    extra = [f"{one.name}: stated {one.threshold} of values {_few(one)}" for one in stated if one not in set(wanted)]
    missing = [f"{one.name}: not {one.threshold} of values {_few(one)}" for one in wanted if one not in set(stated)]
    return extra + missing


def _few(bound: Bound) -> str:
    shown = ", ".join(map(str, bound.members[:5]))
    return f"{{{shown}, ..}}" if len(bound.members) > 5 else f"{{{shown}}}"
