"""What several releases breach, in the plainest form: Definition 5 pair by pair, and every Boolean combination.

All sets of records are compared as they are, in O(pairs of groups * records).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.mechanisms.permute.grouping import Axis, Ints

Kind = Literal["earlier minus later", "later minus earlier", "intersection"]


@dataclass(frozen=True)
class Breach:
    """Records that two groups of two releases together expose."""

    kind: Kind
    releases: tuple[int, int]
    groups: tuple[int, int]
    records: tuple[int, ...]  # positions


def find_pairwise_breaches(axis: Axis, ranks: Ints, releases: Ints) -> Iterator[Breach]:
    r"""Every breach of Definition 5: a\b, b\a or a∩b is not empty and not fine, a of an earlier, b of a later release.

    ``ranks`` (n,), ``releases`` (m, n): group of every record in every release, -1 where it is not in it.
    """
    for later in range(len(releases)):
        for earlier in range(later):
            for a in np.unique(releases[earlier][releases[earlier] >= 0]).tolist():
                for b in np.unique(releases[later][releases[later] >= 0]).tolist():
                    for kind, exposed in _exposed_records(axis, ranks, releases[earlier] == a, releases[later] == b):
                        yield Breach(kind, (earlier, later), (a, b), tuple(np.flatnonzero(exposed).tolist()))


Members = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def _exposed_records(axis: Axis, ranks: Ints, a: Members, b: Members) -> Iterator[tuple[Kind, Members]]:
    sets: tuple[tuple[Kind, Members], ...] = (
        ("earlier minus later", a & ~b),
        ("later minus earlier", b & ~a),
        ("intersection", a & b),
    )
    for kind, members in sets:
        if members.any() and not axis.is_fine(ranks[members]):
            yield kind, members


def find_closure_breaches(axis: Axis, ranks: Ints, releases: Ints) -> list[Ints]:
    """The atoms of the common refinement of all releases that are not fine, each as positions of its records.

    An atom holds the records that no release tells apart; every Boolean combination of groups is a union of atoms. If
    none is listed, whatever is subtracted and intersected is fine or empty. Records of no release are in no atom.
    """
    published = np.flatnonzero((releases >= 0).any(axis=0))
    _, atom = np.unique(releases[:, published], axis=1, return_inverse=True)
    order = np.argsort(atom, kind="stable")
    cuts = np.flatnonzero(np.diff(atom[order])) + 1
    members = np.split(published[order], cuts) if len(published) else []
    return [result for result in members if not axis.is_fine(ranks[result])]
