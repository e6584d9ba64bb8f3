"""The checks of a bucketized release. They share nothing with the search: only the published tables, the manifest's
claims, SQL, and exact fractions.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.names import label
from privsql.engine.sqlfiles import Holes, column, fill, named, same, table, temp
from privsql.mechanisms.bucketize import certain
from privsql.mechanisms.bucketize.fakes.checks import fake_checks, fake_source_checks, fakes
from privsql.mechanisms.bucketize.groups import checks as groupchecks
from privsql.mechanisms.bucketize.joint import joint
from privsql.mechanisms.bucketize.parameters import Bucketize, Facts
from privsql.mechanisms.bucketize.tables import size_of_bucket
from privsql.mechanisms.bucketize.thresholds import thresholds
from privsql.mechanisms.contract import stated
from privsql.model.checks import Check, as_asked, differ, exceed, in_order, tally, values_true

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

SQL: tuple[str, ...] = ("core/", "bucketize/", "verify/")  # what makes and checks a release


def checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    roles = manifest.roles
    _name_tables(db, manifest, database)
    sizes, st, qit, values = temp("v_sizes"), temp("v_st"), temp("v_qit"), temp("v_values")
    channel = temp("v_channel")
    alike, counted = temp("v_kinds"), _as_one(roles.sa())
    threshold_holes: Holes = {
        "st": alike,
        "sizes": sizes,
        "thresholds": values,
        "sa": roles.sa(),
        "sa_worst": roles.sa("w"),
        "sa_st": roles.sa("st"),
        "same_threshold": same("w", "t", roles.sa_keys),
        "same_value": same("st", "b", roles.sa_keys),
    }
    channel_holes: Holes = {
        "st": counted,
        "sizes": sizes,
        "channel": channel,
        "values": values,
        "sa_st": roles.sa("st"),
        "same_value": same("p", "v", roles.sa_keys),
        "fakes": fakes(manifest),
    }
    return [
        *fake_checks(db, manifest, read(manifest)),
        *groupchecks.checks(db, manifest, read(manifest)),
        Check("every bucket obeys every threshold", fill("verify/thresholds_hold", threshold_holes)),
        Check(
            "thresholds are fractions in (0, 1]",
            fill("verify/thresholds_in_range", {"thresholds": values, "sa": roles.sa()}),
        ),
        Check("thresholds follow the stated rule", lambda: _rule(db, manifest), lambda: _said_of_rule(manifest)),
        Check("values that are certain were allowed", lambda: _certain(db, manifest)),
        Check("values and their records are those of ST", values_true(counted, values, roles)),
        Check("the channel agrees with ST in its sums", fill("verify/channel_sums", channel_holes)),
        Check(
            "the channel lists meetings of values",
            fill("verify/channel_positive", {"channel": channel, "values": values}),
        ),
        Check(
            "the channel's rows lie in order, once each", in_order(channel, ["size", "first", "second"], strict=True)
        ),
        Check("the values' rows lie in order", in_order(values, ["code", "records"], strict=True)),
        Check("counts are positive", fill("verify/counts_positive", {"st": st, "sa": roles.sa()})),
        Check("QIT and ST agree on every bucket", _bucket_by_bucket(manifest.facts["setting"], qit)),
        Check(
            "setting is as stated",
            fill("verify/setting_true", {"sizes": sizes, "claimed": temp("v_claimed")}),
        ),
        Check("QIT rows lie in canonical order", in_order(qit, ["bid", *roles.qi_keys], strict=False)),
        Check("ST rows lie in canonical order, once each", in_order(st, ["bid", *roles.sa_keys], strict=True)),
        Check("loss and bounds are as stated", lambda: _claims(manifest)),
    ]


def _as_one(sensitive: list[exp.Expr]) -> exp.Subquery:
    """ST by ``v_kinds``: all records of a kind as if they were in one bucket of its size, where only sums matter."""
    listed = exp.select("bid", *sensitive, named(column("records"), "count"))
    return listed.from_(temp("v_kinds")).subquery("counted")


def _bucket_by_bucket(setting: Mapping[str, int], qit: exp.Table) -> exp.Query:
    """Rows of QIT in another bucket than the setting, which ST has, has there."""
    bid, case, bucket, place = column("bid", "r"), exp.Case(), 0, 0
    for size, buckets in sorted((int(size), buckets) for size, buckets in setting.items()):
        within = exp.Mul(this=exp.paren(exp.Sub(this=bid.copy(), expression=_number(bucket))), expression=_number(size))
        bucket, begin = bucket + buckets, place
        place += size * buckets
        case = case.when(
            exp.LT(this=bid.copy(), expression=_number(bucket)), exp.Add(this=within, expression=_number(begin))
        )
    holes: Holes = {
        "qit": qit,
        "stored": [],
        "first": case,
        "size": size_of_bucket(dict(setting), bid),
        "records": _number(place),
    }
    return fill("verify/bucket_by_bucket", holes)


def _number(value: int) -> exp.Expr:
    return exp.cast(exp.Literal.number(value), "BIGINT")


def _name_tables(db: Relations, manifest: Manifest, database: str | None) -> None:
    """Give the release's tables internal names: v_qit, v_st, v_values, v_channel, with v_sizes and v_claimed."""
    roles, own = manifest.roles, manifest.roles.by_sa
    db.view("v_qit", exp.select(*roles.qi_in(), *roles.by_qi.read("bid")).from_(table("qit", database)))
    db.view("v_st", exp.select(*roles.sa_in(), *own.read("bid", "count")).from_(table("st", database)))
    listed = exp.select(*own.read("code"), *roles.sa_in(), *own.read("records", "numerator", "denominator"))
    db.view("v_values", listed.from_(table("privsql_values", database)))
    db.view("v_channel", exp.select("*").from_(table("privsql_channel", database)))
    size = size_of_bucket(manifest.facts["setting"], column("bid", "st"))
    db.make("v_kinds", fill("verify/kinds", {"st": temp("v_st"), "sa": roles.sa("st"), "size": size}))
    db.make("v_sizes", fill("verify/bucket_sizes", {"st": temp("v_st"), "fakes": fakes(manifest)}))
    db.put("v_claimed", _claimed(manifest.facts))


def long_checks(manifest: Manifest) -> list[Check]:
    """What ``verify`` checks beyond ``checks``: implied by the way of publishing, and longer."""
    holes: Holes = {
        "st": temp("v_st"),
        "sizes": temp("v_sizes"),
        "channel": temp("v_channel"),
        "values": temp("v_values"),
        "same_value": same("st", "v", manifest.roles.sa_keys),
    }
    return [Check("the channel is that of ST in every entry", fill("verify/channel_true", holes))]


def source_checks(db: Relations, manifest: Manifest, source: Records, asked: Bucketize) -> list[Check]:
    """The checks against the source, prepared as ``records``, after ``checks`` has named the release's tables."""
    roles, given = manifest.roles, thresholds(db, source, asked.threshold)
    compare = differ if asked.excess == "refuse" else exceed
    quasi = compare(roles.qi(), tally(temp("records"), roles.qi()), tally(temp("v_qit"), roles.qi()))
    return [
        Check("parameters are those of the specification", lambda: _parameters(read(manifest), asked)),
        Check("thresholds are those of the specification", lambda: _as_asked(db, given)),
        *groupchecks.source_checks(db, manifest, source, asked),
        *_value_checks(manifest, source, asked),
        Check("quasi-identifiers are the source's", quasi),
        _joint(db, manifest, asked),
    ]


def _parameters(stated: Bucketize, asked: Bucketize) -> list[str]:
    """Parameters but for the publisher's word that certain values are meant, which a flag may have given."""
    return as_asked(stated, asked.model_copy(update={"allow_certain": stated.allow_certain}))


def _joint(db: Relations, manifest: Manifest, asked: Bucketize) -> Check:
    """That the source's records can lie in these buckets, quasi-identifiers and values together."""
    once = cache(partial(joint, db, manifest, fakes=asked.fake_values, left_out=asked.excess == "suppress"))
    name = "the buckets can have come from the source's records, quasi-identifiers and values together"
    return Check(name, lambda: once().wrong, lambda: once().compared)


def _value_checks(manifest: Manifest, source: Records, asked: Bucketize) -> list[Check]:
    """The listed values against the source's: the same; fewer, if some are left out; or more, if some are fake."""
    if asked.fake_values:
        return fake_source_checks(manifest, source, asked)
    roles, compare = manifest.roles, differ if asked.excess == "refuse" else exceed
    published = tally(temp("v_st"), roles.sa(), column("count"))
    query = compare(roles.sa(), tally(temp("records"), roles.sa()), published)
    return [Check("sensitive values are the source's", query)]


def _as_asked(db: Relations, asked: Sequence[Fraction]) -> list[str]:
    """Compare the published thresholds with those that the specification gives."""
    listed = exp.select("numerator", "denominator").from_(temp("v_values")).order_by("code")
    stated = [Fraction(int(top), int(bottom)) if top and bottom else None for top, bottom in db.rows(listed)]
    if len(stated) != len(asked):
        return [f"{len(stated)} thresholds, the source has {len(asked)} values"]
    pairs = enumerate(zip(stated, asked, strict=True))
    return [f"value {code}: stated {s}, asked for {a}" for code, (s, a) in pairs if s != a]


def _claimed(facts: dict[str, Any]) -> pa.Table:
    sizes = np.array([int(size) for size in facts["setting"]], dtype=np.int64)
    buckets = np.array(list(facts["setting"].values()), dtype=np.int64)
    return pa.table({"size": sizes, "buckets": buckets, "first": np.cumsum(buckets) - buckets})


def read(manifest: Manifest) -> Bucketize:
    """The parameters of a release; ``UsageError`` if these or its facts are not what a bucketized release states."""
    return stated(manifest, Facts, Bucketize, "plan")


def _certain(db: Relations, manifest: Manifest) -> list[str]:
    """Values that are certain, though that was neither written nor allowed; earlier versions did not ask."""
    asked, roles, values = read(manifest), manifest.roles, temp("v_values")
    if "allow_certain" not in manifest.parameters or certain.free(asked):
        return []
    texts = [exp.cast(item, "VARCHAR") for item in roles.sa()]
    rows = db.rows(exp.select(*texts, "numerator", "denominator").from_(values).order_by("code"))
    shares = [Fraction(int(top or 0), int(bottom or 1)) for *_, top, bottom in rows]
    excused = certain.written(asked, [label(row[:-2]) for row in rows], shares)
    found = certain.certain(db, temp("v_st"), values, manifest.facts["setting"], roles, excused)
    return [f"{name}: certain for {records} records" for name, records in found.items()]


def _said_of_rule(manifest: Manifest) -> str:
    given = read(manifest).threshold.query is not None
    return "a query gave them: compared with it only where the source is given" if given else ""


def _rule(db: Relations, manifest: Manifest) -> list[str]:
    """Recompute every threshold from the manifest's rule and the counts of ST, in fractions."""
    asked = read(manifest)
    if asked.threshold.query is not None:
        return []  # given value by value; the table itself is the statement
    roles = manifest.roles
    labels = [named(exp.cast(item, "VARCHAR"), key) for item, key in zip(roles.sa("st"), roles.sa_keys, strict=True)]
    holes: Holes = {
        "st": _as_one(roles.sa()),
        "thresholds": temp("v_values"),
        "labels": labels,
        "sa": roles.sa("st"),
        "same_value": same("st", "t", roles.sa_keys),
    }
    rows = db.rows(fill("verify/value_counts", holes))
    shown = [" ".join(str(part) for part in row[:-3]) for row in rows]
    if not rows or not all(row[-3] and row[-3] > 0 for row in rows):
        return ["a value has no records"]
    expected = _expected(asked, rows)
    if isinstance(expected, str):
        return [expected]
    return [
        f"value {label}: stated {row[-2]}/{row[-1]}, the rule gives {value}"
        for label, row, value in zip(shown, rows, expected, strict=True)
        if row[-2] is None or not row[-1] or Fraction(int(row[-2]), int(row[-1])) != value
    ]


def _expected(asked: Bucketize, rows: list[tuple[Any, ...]]) -> tuple[Fraction, ...] | str:
    try:
        return asked.threshold.of([label(row[:-3]) for row in rows], [int(row[-3]) for row in rows])
    except ValueError as error:
        return str(error)


def _claims(manifest: Manifest) -> list[str]:
    """Arithmetic of the manifest: records, loss, bounds, sizes."""
    facts, asked = manifest.facts, read(manifest)
    setting: Mapping[int, int] = {int(size): int(buckets) for size, buckets in facts["setting"].items()}
    records = sum(size * buckets for size, buckets in setting.items())
    loss = sum(buckets * (size - 1) ** 2 for size, buckets in setting.items())
    bound = int(facts["lower_bound"])
    claims = {
        f"published {manifest.published}, but the buckets hold {records}": manifest.published == records,
        f"records {manifest.records} = published + suppressed": manifest.records
        == records + (manifest.suppressed or 0),
        f"loss {facts['loss']}, but the setting has {loss}": facts["loss"] == loss,
        f"mse {facts['mse']}": facts["mse"] == loss / max(1, records - 1),
        f"lower bound {bound} exceeds the loss {loss}": bound <= loss,
        f"gap {facts['gap']}": facts["gap"] == (0.0 if loss == bound else float(Fraction(loss - bound, max(1, bound)))),
        f"bucket sizes {min(setting)}..{max(setting)} lie outside what was asked": (
            asked.min_bucket_size <= min(setting) and max(setting) <= max(asked.max_bucket_size, asked.min_bucket_size)
        ),
        f"layout {facts['layout']}": facts["layout"] == asked.composition
        or (facts["layout"], asked.composition) == ("well-mixed", "blocks"),  # as releases of 0.1 say
        f"left out {facts.get('left_out', 0)}": facts.get("left_out", 0) <= (manifest.suppressed or 0),
        f"algorithm {manifest.algorithm}": manifest.algorithm == asked.algorithm,
        f"fake values {facts.get('fake_values', 0)}": facts.get("fake_values", 0) == asked.fake_values,
    }
    return [wrong for wrong, holds in claims.items() if not holds]
