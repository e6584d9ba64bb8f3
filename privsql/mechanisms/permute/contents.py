"""What the groups of a release hold, and the channel through which they are seen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy
from sqlglot import exp

from privsql.answers.channel import POWER, Channel
from privsql.engine.sqlfiles import Holes, fill, same, table
from privsql.errors import UsageError

if TYPE_CHECKING:
    from privsql.answers.channel import Floats
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.permute.axis import Ints

LARGE = 2**24  # numbers that the channel's matrix may hold
MOST_GROUPS = 2000  # beyond which nothing of groups^3 operations is done


@dataclass(frozen=True)
class Contents:
    """What ST tells: rows (group, code, records), in order."""

    group: Ints
    code: Ints
    records: Ints
    groups: int
    values: int

    @property
    def sizes(self) -> Ints:
        """|g| (B,)."""
        return np.bincount(self.group, self.records, minlength=self.groups).astype(np.int64)

    @property
    def totals(self) -> Ints:
        """o_i (m,)."""
        return np.bincount(self.code, self.records, minlength=self.values).astype(np.int64)

    @property
    def table(self) -> scipy.sparse.csr_array:
        """Records by group and code (B, m)."""
        return scipy.sparse.csr_array(
            (self.records.astype(np.float64), (self.group, self.code)), shape=(self.groups, self.values)
        )

    @property
    def is_small(self) -> bool:
        """Whether the channel's matrix can be held."""
        return self.groups * self.values <= LARGE and self.groups <= MOST_GROUPS


def contents(db: Relations, roles: Roles, database: str | None) -> Contents:
    """The contents of a release's groups, its tables in ``database``."""
    own = roles.by_sa
    st = exp.select(*own.read("bid", "count"), *roles.sa_in()).from_(table("st", database)).subquery("st")
    values = exp.select(*own.read("code"), *roles.sa_in()).from_(table("privsql_values", database)).subquery("v")
    holes: Holes = {"st": st, "values": values, "same_value": same("st", "v", roles.sa_keys)}
    rows = db.arrow(fill("permute/contents", holes))
    group, code, records = (rows[name].to_numpy().astype(np.int64) for name in ("bid", "code", "records"))
    return Contents(group, code, records, int(group.max()) + 1, int(code.max()) + 1)


class Groups(Channel):
    """The channel of groups: a question's deviations are those of groups (powers as of values in ``Channel``).

    Within a group they are in proportion to the values' records: neighbours on the axis deviate together, so that a
    group's records are shared out as in the papers' formula.
    """

    @cached_property
    def spread(self) -> Floats:
        """Shape of the prior's variance, f_i sum_g M_ig s_g^0.5 F, s_g the groups' shares, F = sum s^2 / sum s^1.5."""
        groups = self.shares @ self.mean
        shape = self.shares * (self.mean @ groups ** (POWER - 1))
        return np.asarray(shape * ((groups**2).sum() / shape.sum()))


def through(held: Contents) -> Channel:
    """A question is seen as how many records of every group meet it: M_ig = share of value i that lies in g.

    ``UsageError`` for a release that is too large.
    """
    if not held.is_small:
        raise UsageError(
            f"a release of {held.groups:,} groups and {held.values:,} values is too large for its channel to be told"
        )
    mean = held.table.toarray().T / np.maximum(held.totals, 1)[:, None]
    return Groups(mean, np.diag(held.sizes.astype(np.float64)), held.totals.astype(np.float64))
