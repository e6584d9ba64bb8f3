"""(k,e)-anonymity as a mechanism (``contract``): group over distinct values, shuffle, publish through SQL.

US patent 8,112,422 B2 (granted 2012) speaks of (k,e)-anonymization for aggregate queries; users may look into it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from privsql.answers.accuracy import by_questions
from privsql.attacks import intersection
from privsql.attacks.suite import Suite
from privsql.engine.sqlfiles import Holes, fill, temp
from privsql.errors import InfeasibleError
from privsql.mechanisms import alternatives
from privsql.mechanisms.contract import Groups, Mechanism, Proposal, Table
from privsql.mechanisms.permute import guesses, said, together
from privsql.mechanisms.permute.answers import Answers
from privsql.mechanisms.permute.assign import contents, write_ranked, write_records
from privsql.mechanisms.permute.axis import axis
from privsql.mechanisms.permute.checks import SQL, bounds, checks, long_checks, read, source_checks
from privsql.mechanisms.permute.history import History, arranged, labels
from privsql.mechanisms.permute.incremental import release
from privsql.mechanisms.permute.parameters import Permute, extent
from privsql.mechanisms.permute.scale import DAY, STEPS, Measured, measured
from privsql.mechanisms.permute.scene import Permuted
from privsql.mechanisms.permute.sweep import static
from privsql.mechanisms.permute.tables import tables, view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.contract import Profiled
    from privsql.mechanisms.permute.axis import Axis, Ints
    from privsql.model.records import Records
    from privsql.noise import Key

NESTED, LAST = "nested", "reapply-last"
K, PARTS = 5, (10, 5, 4, 3, 2, 1)  # proposed: k, and the first e of these parts of the middle half's range that will do


def plan(db: Relations, source: Records, asked: Permute) -> dict[str, Any]:
    """The facts of the next release: of the static optimum, if it is the first one."""
    found = measured(db, source, asked.k, asked.e)
    starts = _static(found, source, asked)
    if source.history.releases:
        source.sort()
        codes, groups = _assigned(found, source, asked, starts)
        return _facts(found, groups[groups >= 0], codes[groups >= 0], None) | _held(groups)
    codes = np.arange(len(source.counts), dtype=np.int64)
    return _facts(found, labels(starts, len(codes)), codes, source.counts)


def _static(found: Measured, source: Records, asked: Permute) -> list[int]:
    starts = static(found.axis)
    if starts:
        return starts
    units, name = found.axis.units, source.roles.sensitive[0].name
    widest = found.shown(units[-1] - units[0]) if units else "0"
    raise InfeasibleError(
        f"column {name!r} has {len(units)} distinct values over a range of {widest}; one group with k = {asked.k} and "
        f"e = {asked.e} needs as many: lower mechanism.k to {min(asked.k, len(units))} or mechanism.e to {widest}",
        {"distinct": len(units), "range": widest},
    )


def publish(db: Relations, source: Records, asked: Permute, key: Key) -> dict[str, Any]:
    """Make ``qit``, ``st`` and ``privsql_values`` in database ``release``; returns the facts."""
    found = measured(db, source, asked.k, asked.e)
    starts = _static(found, source, asked)
    codes, groups = _assigned(found, source, asked, starts)
    roles = source.roles
    shown = np.flatnonzero(groups >= 0)  # the others are held back
    values, ranks, records = _published(codes[shown], source.counts)
    if source.order == "portable":
        write_ranked(db, source, groups, ranks, key)
    else:
        noise = key.stream("permute", int(groups.max()) + 1, tuple(source.counts), tuple(source.labels))
        write_records(db, source, groups, ranks, noise)
    source.history.groups = groups
    db.put("composition", contents(groups[shown], codes[shown]))
    holes: Holes = {"composition": temp("composition"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    holes |= roles.by_sa.names("bid", "count")
    db.make("st", fill("core/st", holes), into="release", title="Writing the sensitive table")
    db.put("published", pa.table({"code": values, "rank": np.arange(len(values)), "records": records}))
    listed: Holes = {"published": temp("published"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    listed |= roles.by_sa.names("code", "records")
    db.make("privsql_values", fill("permute/values", listed), into="release")
    db.drop("composition", "published")
    return _facts(found, groups[shown], codes[shown], None) | _held(groups)


def _assigned(found: Measured, source: Records, asked: Permute, starts: list[int]) -> tuple[Ints, Ints]:
    """Value and group of every record (n,); ``starts`` of the static optimum, which the first release takes."""
    codes = np.repeat(np.arange(len(source.counts), dtype=np.int64), source.counts)
    if not source.history.releases:
        return codes, np.asarray(labels(starts, len(found.axis.units))[codes])
    needed = source.history.releases if asked.algorithm in ("exact", "reapply-all") else 1
    return codes, grouped(found, codes, source.history.earlier(needed, source.records), asked)


def _held(groups: Ints) -> dict[str, Any]:
    """How many records wait, and so are left out."""
    held = int((groups < 0).sum())
    return {"held_back": held, "left_out": held}


def _published(codes: Ints, counts: Sequence[int]) -> tuple[Ints, Ints, Ints]:
    """The values that are published, the rank of every record's value among them, and their records."""
    if len(codes) == sum(counts):
        return np.arange(len(counts)), codes, np.array(counts, dtype=np.int64)
    values, ranks, records = np.unique(codes, return_inverse=True, return_counts=True)
    return values, ranks, records


def grouped(found: Measured, codes: Ints, earlier: Ints, asked: Permute) -> Ints:
    """Group of every record (n,), records by rising value, given their groups in earlier releases (m, n)."""
    if asked.algorithm == "nested":  # works on values and groups; the order of records is nothing to it
        return release(History(found.axis, codes, earlier), asked.algorithm)
    order = arranged(codes, earlier)
    groups = np.empty(len(codes), dtype=np.int64)
    groups[order] = release(History(found.axis, codes[order], earlier[:, order]), asked.algorithm)
    return groups


def _facts(found: Measured, groups: Ints, codes: Ints, weights: Any) -> dict[str, Any]:
    """Groups and widths; ``weights``: how many records each entry stands for."""
    number = int(groups.max()) + 1
    low, high = np.full(number, len(found.axis.units)), np.full(number, -1)
    np.minimum.at(low, groups, codes)
    np.maximum.at(high, groups, codes)
    sizes = np.bincount(groups, weights=weights, minlength=number)
    widths = [found.axis.width(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    spread = sum(width * int(size) for width, size in zip(widths, sizes.tolist(), strict=True))
    return {
        "loss": float(sum(widths) * found.unit),
        "error": found.shown(sum(widths)),
        "groups": number,
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "mean_width": float(spread * found.unit / int(sizes.sum())),
    }


def propose(db: Relations, source: Profiled) -> Proposal:
    """K values over e, e from the spread of the values: the least part of the middle half's range that will do.

    That is, with which the best exact guess (the commonest value of the group) is right for at most half of the
    records; where a value is so common that no range of ``PARTS`` does, the widest, with a remark.
    """
    records = source.records()
    k = min(K, len(records.counts))
    is_time = records.roles.sensitive[0].type in STEPS
    found = measured(db, records, k, extent("0 days") if is_time else extent(0))
    units, ends = found.axis.units, np.cumsum(records.counts)
    low, high = (units[int(np.searchsorted(ends, int(ends[-1]) * share // 4, side="right"))] for share in (1, 3))
    middle = (high - low) or (units[-1] - units[0])
    widths = [middle // part for part in PARTS] or [0]
    guesses = [_guessed(axis(units, k, width), records.counts) for width in widths]
    chosen = next((number for number, guess in enumerate(guesses) if guess <= Fraction(1, 2)), len(widths) - 1)
    e = _shown(float(widths[chosen] * found.unit), is_time=is_time)
    remarks: tuple[str, ...] = (f"e is a part of the range of the middle half of the values, {found.shown(middle)}.",)
    if guesses[chosen] > Fraction(1, 2):
        remarks += (f"Mind: who guesses the commonest value of a group is right for {float(guesses[chosen]):.0%}.",)
    return Proposal({"kind": "permute", "algorithm": "nested", "k": k, "e": e}, remarks)


def _shown(width: float, *, is_time: bool) -> str:
    if is_time:
        return f"{max(1, width // DAY):.0f} days"
    return f"{width:.0f}" if width >= 100 else f"{width:.3g}"


def _guessed(line: Axis, counts: Sequence[int]) -> Fraction:
    """Share of the records that the commonest value of their group is right for, in the static optimum."""
    starts = static(line)
    if not starts:
        return Fraction(1)
    most = np.maximum.reduceat(np.array(counts, dtype=np.int64), starts)
    return Fraction(int(most.sum()), sum(counts))


def terms(asked: Permute) -> tuple[int, str]:
    """What releases must agree in for a guarantee over all of them, besides the columns."""
    return asked.k, str(asked.e)


def covered(algorithms: Sequence[str]) -> str | None:
    """What releases of the same subjects guarantee together; the first one has nothing to breach.

    ``exact`` and ``reapply-all`` look at every earlier release. ``nested`` unites groups of the last one, so that what
    it leaves and shares with a group of any earlier release is a union of what the last one did. ``reapply-last`` sees
    the last release alone, which is all that there is for a second one.
    """
    later = list(algorithms[1:])
    if set(later) == {LAST}:
        return "groups are checked against those of the last release only; older ones may breach"
    if LAST in later[1:]:
        return None
    if set(later) <= {NESTED}:
        return "every Boolean combination of groups of all releases is (k,e)-anonymous or empty"
    return "no two groups of two releases breach (k,e)-anonymity (Definition 5); three may"


def promise(asked: Permute) -> str:
    """How many values over which range."""
    return f"{asked.k} values over {asked.e}"


def figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Groups and widths."""
    held = [("held back", f"{facts['held_back']:,} new records")] if facts.get("held_back") else []
    return [
        ("groups", f"{facts['groups']:,}  (of {facts['smallest']:,} to {facts['largest']:,} records)"),
        ("error", f"{facts['error']}  (sum of max - min; {facts['mean_width']:.6g} around a record)"),
        *held,
    ]


MECHANISM = Mechanism(
    parameters=Permute,
    shape=Table(numeric=True, most_numbers=None),
    composition=Groups(terms, covered, together),
    sql=SQL,
    relations=("qit", "st", "privsql_values"),
    read=read,
    plan=plan,
    algorithms=alternatives.none(
        "its algorithms differ in what they do with rows that are added later, not in what they tell of a table"
    ),
    publish=publish,
    tables=tables,
    view=view,
    checks=checks,
    long_checks=long_checks,
    measured=lambda _db, _manifest: {},
    bounds=bounds,
    source_checks=source_checks,
    answers=Answers,
    evaluate=by_questions,
    adversaries=Suite(
        scene=Permuted,
        adversaries=guesses.ADVERSARIES,
        combining=(intersection.attack, together.attack),
        quick=None,
    ),
    promise=promise,
    words=said.words,
    structure=said.structure,
    advice=(
        "a larger k or e: more and more different values in every group",
        "coarser quasi-identifiers (age in bands, regions for places), or fewer: less to learn from",
    ),
    propose=propose,
    warnings=lambda _: [],
    figures=figures,
)
