"""The checks of what a release with fake values states of them: arithmetic in fractions on ST and the manifest, and the
law of the fakes worked out again for the published lists.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.engine.names import label
from privsql.engine.sqlfiles import Holes, column, fill, same, temp
from privsql.mechanisms.bucketize.fakes.chances import Entries, scaled
from privsql.mechanisms.bucketize.fakes.lists import times_listed
from privsql.model.checks import Check, exceed, tally

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.parameters import Bucketize
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

CLOSE = 2e-4  # what is stated of single buckets is rounded up to 1e-4


def fakes(manifest: Manifest) -> exp.Expr:
    """Sigma, for SQL."""
    return exp.Literal.number(manifest.facts.get("fake_values", 0))


def fake_checks(db: Relations, manifest: Manifest, asked: Bucketize) -> list[Check]:
    """That every bucket lists distinct values, if some of them are fake, and how certain they are."""
    facts = manifest.facts
    if not facts.get("fake_values"):
        return [Check("nothing is said of fakes where there are none", lambda: _nothing(manifest, asked))]
    distinct = fill("verify/count_above", {"st": temp("v_st"), "sa": manifest.roles.sa()})
    found = [Check("every bucket lists distinct values", distinct)]
    if facts.get("fake_law") is None:  # fakes uniform over the values that are not in the bucket
        return [*found, Check("of fakes no more is said than their number", lambda: _nothing(manifest, asked))]
    return [
        *found,
        Check("as many values are fake as asked for", lambda: _number(manifest, asked)),
        Check("each value is listed as often as the law of the fakes says", lambda: _law(db, manifest)),
        Check("each value is as certain as stated", lambda: _certainty(db, manifest)),
        Check("values are as even as asked for", lambda: _even(db, manifest, asked)),
        Check("no listed value is more certain than stated", lambda: _anywhere(db, manifest)),
    ]


def _number(manifest: Manifest, asked: Bucketize) -> list[str]:
    said = manifest.facts.get("fake_values", 0)
    return [] if said == asked.fake_values else [f"{said} fake values in every bucket, asked for {asked.fake_values}"]


def _nothing(manifest: Manifest, asked: Bucketize) -> list[str]:
    """Releases from before there was a law did not ask for evenness either."""
    said = [name for name in ("real", "certainty", "uneven", "excluded_real") if manifest.facts.get(name) is not None]
    silent = asked.fake_values and "uneven_fakes" in manifest.parameters
    return [
        *_number(manifest, asked),
        *(f"{name} is stated" for name in said),
        *(["the law of the fakes is not stated"] if silent else []),
    ]


def _listed(db: Relations, manifest: Manifest) -> list[tuple[str, int]]:
    """Text and listed records of every value, by code."""
    labels = [exp.cast(item, "VARCHAR") for item in manifest.roles.sa()]
    rows = db.rows(exp.select(*labels, "records").from_(temp("v_values")).order_by("code"))
    return [(label(row[:-1]), int(row[-1] or 0)) for row in rows]


def _law(db: Relations, manifest: Manifest) -> list[str]:
    """How often each value is listed follows from how often it is real."""
    facts, listed = manifest.facts, _listed(db, manifest)
    real, sizes = facts.get("real") or [], sorted((int(size), number) for size, number in facts["setting"].items())
    if len(real) != len(listed) or sum(real) != sum(size * number for size, number in sizes):
        return [f"{sum(real)} values are stated to be real, of {len(real)} kinds; {len(listed)} are listed"]
    wanted = times_listed(np.array(real), sizes, facts["fake_values"]).sum(axis=1).tolist()
    return [
        f"value {name}: listed {number} times, {times} by the law"
        for (name, number), times in zip(listed, wanted, strict=True)
        if number != times
    ]


def _certainty(db: Relations, manifest: Manifest) -> list[str]:
    """What is stated of single values, from how often each is listed and real."""
    facts, listed = manifest.facts, _listed(db, manifest)
    real, said = facts.get("real"), facts.get("certainty")
    if real is None or said is None or len(real) != len(listed):
        return [f"real and certainty are stated for {len(real or [])} of {len(listed)} values"]
    wrong = [
        f"value {name}: real {own} times, listed {number} times"
        for (name, number), own in zip(listed, real, strict=True)
        if own > number
    ]
    if sum(real) != manifest.published:
        wrong.append(f"{sum(real)} real values, {manifest.published} records")
    if wrong or not any(real):
        return wrong or ["nothing is real"]
    each = [(name, Fraction(own, number)) for (name, number), own in zip(listed, real, strict=True) if number]
    some, mean = [of for _, of in each if of], Fraction(sum(real), sum(number for _, number in listed))
    found = {"mean": mean, "lowest": min(some), "highest": max(some)}
    wrong += [f"{name} {said[name]}, found {value}" for name, value in found.items() if _fraction(said[name]) != value]
    uneven = facts.get("uneven", {}).items()
    return wrong + [f"{name}: {value}" for name, value in uneven if (name, _fraction(value)) not in each]


def _even(db: Relations, manifest: Manifest, asked: Bucketize) -> list[str]:
    """The k most frequent values have at most sum min(S + sigma, k) b S/(S + sigma) records, for every k.

    Where that was not asked for, whatever has more than sum b S/(S + sigma) is named.
    """
    real, facts = manifest.facts.get("real") or [], manifest.facts
    if asked.uneven_fakes == "state":
        each = sum((_share(size, number, facts) for size, number in facts["setting"].items()), Fraction(0))
        named_ = facts.get("uneven", {})
        names = (name for name, _ in _listed(db, manifest))
        return [
            f"{name}: too frequent" for name, own in zip(names, real, strict=False) if own > each and name not in named_
        ]
    wrong, total = [f"{name} is stated to be uneven" for name in facts.get("uneven", {})], 0
    for k, own in enumerate(sorted(real, reverse=True), start=1):
        total += own
        room = sum(
            min(int(size) + facts["fake_values"], k) * _share(size, number, facts)
            for size, number in facts["setting"].items()
        )
        if total > room:
            wrong.append(f"the {k} most frequent values have {total} records, {float(room):.1f} at most can be hidden")
    return wrong


def _share(size: str, buckets: int, facts: dict[str, Any]) -> Fraction:
    return Fraction(buckets * int(size), int(size) + facts["fake_values"])


def _anywhere(db: Relations, manifest: Manifest) -> list[str]:
    """The law's probabilities for the published lists (``chances.scaled``): the highest is the one that is stated."""
    facts, real = manifest.facts, manifest.facts.get("real") or []
    said = (facts.get("certainty") or {}).get("anywhere")
    if manifest.parameters.get("exclude_negative"):
        return [] if said is None else [f"anywhere {said} is stated of fakes that depend on associations"]
    holes: Holes = {
        "st": temp("v_st"),
        "sizes": temp("v_sizes"),
        "values": temp("v_values"),
        "same_value": same("st", "v", manifest.roles.sa_keys),
    }
    rows = db.arrow(fill("verify/entries", holes))
    bid, code, size = (rows[name].to_numpy().astype(np.int64) for name in ("bid", "code", "size"))
    if said is None or not len(bid) or code.max() >= len(real):
        return ["anywhere is not stated"]
    buckets = np.unique(bid, return_inverse=True)[1]
    entries = Entries(buckets, code, (int(buckets.max()) + 1, len(real)))
    number = np.array(real)
    share = size / (size + facts["fake_values"])
    ratio = number / np.maximum(entries.sums(share)[1], 1e-9)
    fake = entries.lengths[1] - number
    chances = scaled(entries, 1 - share * ratio[code], np.full(entries.shape[0], facts["fake_values"]), fake)
    found = float((1 - chances).max())
    return [] if found - 1e-6 <= said <= found + CLOSE else [f"anywhere {said}, found {found:.6f}"]


def fake_source_checks(manifest: Manifest, source: Records, asked: Bucketize) -> list[Check]:
    """The listed values against the source's, where some are fake: more of each, and as many of them real."""
    roles = manifest.roles
    holes: Holes = {
        "qit": temp("v_qit"),
        "st": temp("v_st"),
        "records": temp("records"),
        "qi": roles.qi(),
        "sa": roles.sa(),
        "sa_real": roles.sa("r"),
        "fakes": fakes(manifest),
        "same_qi": same("q", "r", roles.qi_keys),
        "same_value": same("st", "k", roles.sa_keys),
    }
    published = tally(temp("v_st"), roles.sa(), column("count"))
    missing = exceed(roles.sa(), published, tally(temp("records"), roles.sa()))
    return [
        *([] if asked.excess == "suppress" else [Check("every sensitive value of the source is listed", missing)]),
        Check("no more values of a bucket are fake than stated", fill("verify/unexplained", holes)),
        Check("values are real as often as in the source", lambda: _real(manifest, source, asked)),
    ]


def _real(manifest: Manifest, source: Records, asked: Bucketize) -> list[str]:
    """What is stated to be real of each value against the source's counts; fewer, if some are left out."""
    real = manifest.facts.get("real")
    if real is None:
        return []
    if len(real) != len(source.counts):
        return [f"{len(real)} values, the source has {len(source.counts)}"]
    less = asked.excess == "suppress"
    return [
        f"value {name}: real {own} times, {has} in the source"
        for name, own, has in zip(source.labels, real, source.counts, strict=True)
        if own > has or (own < has and not less)
    ]


def _fraction(value: Any) -> Fraction | None:
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None
