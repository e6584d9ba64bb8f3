"""Check a bucketized release, its fakes and its bounds on groups.

The checks share nothing with the search: they read the published tables and the manifest, and recompute the rest.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.files import label_value
from privsql.engine.sqlfiles import Holes, alias_as, all_rows, column, fill, same_columns, table, temp_table
from privsql.exact import fraction_text
from privsql.mechanisms.bucketize import beliefs
from privsql.mechanisms.bucketize.beliefs import (
    GroupBound,
    SensitiveColumn,
    compute_bounds,
    compute_thresholds,
    count_together,
    make_bounds,
    measure_group_beliefs,
    put_members,
    read_values,
    size_of_bucket,
    stated_bounds,
)
from privsql.mechanisms.bucketize.estimator import choose_weighting, differ_from_channel
from privsql.mechanisms.bucketize.fake_chances import Entries, scale_chances, times_listed
from privsql.mechanisms.bucketize.joint import compare_jointly
from privsql.mechanisms.bucketize.parameters import Bucketize, BucketizeFacts
from privsql.mechanisms.contract import read_stated_parameters
from privsql.model.manifest import (
    Check,
    VerifiedBound,
    count_combinations,
    differ_from_spec,
    differing_combinations,
    exceeding_combinations,
    in_order,
    values_true,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

# Groups of values -----------------------------------------------------------------------------------------------------
# The checks of bounds on sets of values: columns of a compound attribute, and groups. As ``group_checks``, they share
# nothing with the search.


def group_checks(db: Relations, manifest: Manifest, params: Bucketize) -> list[Check]:
    """That every bucket keeps the bounds, and that these are what the parameters ask for; none if there are none."""
    stated = stated_bounds(manifest.facts)
    if not stated and not params.is_bounding:
        return []
    _put_bounds(db, stated)
    held = count_together(temp_table("v_st"), temp_table("v_values"), temp_table("v_members"), manifest.roles)
    holes: Holes = {"held": held, "sizes": temp_table("v_sizes"), "bounds": temp_table("v_bounds")}
    return [
        Check("every bucket obeys every bound on groups", fill("verify/bounds_hold", holes)),
        Check(
            "bounds on groups follow from what was asked",
            lambda: _wrong_bounds(db, manifest, params),
            lambda: _explain_queried(params),
        ),
    ]


def promise_group_bounds(db: Relations, manifest: Manifest) -> list[VerifiedBound]:
    """Every bound, and the largest share of a bucket that its values have."""
    highest = measure_group_beliefs(db, temp_table("v_st"), temp_table("v_values"), manifest.facts, manifest.roles)
    stated = stated_bounds(manifest.facts)
    return [
        VerifiedBound(one.name, fraction_text(one.threshold), fraction_text(most))
        for one, most in zip(stated, highest, strict=True)
    ]


def group_source_checks(db: Relations, manifest: Manifest, source: Records, params: Bucketize) -> list[Check]:
    """That the bounds are those that the specification has for the source."""
    stated = stated_bounds(manifest.facts)
    if not stated and not params.is_bounding:
        return []
    wanted = compute_bounds(db, source, params)
    return [Check("bounds on groups are those of the specification", lambda: _differing_bounds(stated, wanted))]


def _put_bounds(db: Relations, stated: Sequence[GroupBound]) -> None:
    """Relations v_members(bound, code) and v_bounds(bound, name, numerator, denominator as text)."""
    put_members(db, "v_members", stated)
    texts = {
        "name": [one.name for one in stated],
        "numerator": [str(one.threshold.numerator) for one in stated],
        "denominator": [str(one.threshold.denominator) for one in stated],
    }
    columns = {key: pa.array(column, pa.string()) for key, column in texts.items()}
    db.register_arrow("v_bounds", pa.table({"bound": np.arange(len(stated)), **columns}))


def _explain_queried(params: Bucketize) -> str:
    queried = [name for name, threshold in params.components.items() if threshold.query is not None]
    return f"queries gave those of {', '.join(queried)}: compared only where the source is given" if queried else ""


def _wrong_bounds(db: Relations, manifest: Manifest, params: Bucketize) -> list[str]:
    """Recompute the sets and their thresholds from the manifest's parameters and the listed values.

    What a query gave for a column is as stated, and only seen to lie in (0, 1].
    """
    listed = exp.select("records").from_(temp_table("v_values")).order_by("code")
    counts = [int(row[0] or 0) for row in db.rows(listed)]
    if not counts or min(counts) <= 0:
        return ["a value has no records"]
    stated = stated_bounds(manifest.facts)
    stated_by_set = {(one.name, one.members): one.threshold for one in stated}

    def query_stated(part: SensitiveColumn, _: str) -> list[Fraction]:
        return [
            stated_by_set.get((part.bound_name(rank), part.find_members({rank})), Fraction(1))
            for rank in range(len(part.labels))
        ]

    values = read_values(db, temp_table("v_values"), manifest.roles, counts)
    outside = [f"{one.name}: threshold {one.threshold} is above 1" for one in stated if one.threshold > 1]
    return _differing_bounds(stated, make_bounds(params, values, query_stated)) + outside


def _differing_bounds(stated: Sequence[GroupBound], wanted: Sequence[GroupBound]) -> list[str]:
    """Bounds that are stated and not wanted, and the other way round."""
    extra = [
        f"{one.name}: stated {one.threshold} of values {_name_members(one)}" for one in stated if one not in set(wanted)
    ]
    missing = [
        f"{one.name}: not {one.threshold} of values {_name_members(one)}" for one in wanted if one not in set(stated)
    ]
    return extra + missing


def _name_members(bound: GroupBound) -> str:
    codes = ", ".join(map(str, bound.members[:5]))
    return f"{{{codes}, ..}}" if len(bound.members) > 5 else f"{{{codes}}}"


# Fakes ----------------------------------------------------------------------------------------------------------------
# The checks of what a release with fake values states of them: arithmetic in fractions on ST and the manifest, and the
# law of the fakes worked out again for the published lists.

CLOSE = 2e-4  # what is stated of single buckets is rounded up to 1e-4


def sigma_literal(manifest: Manifest) -> exp.Expr:
    """Sigma, for SQL."""
    return exp.Literal.number(manifest.facts.get("fake_values", 0))


def fake_checks(db: Relations, manifest: Manifest, params: Bucketize) -> list[Check]:
    """That every bucket lists distinct values, if some of them are fake, and how certain they are."""
    facts = manifest.facts
    if not facts.get("fake_values"):
        return [
            Check("nothing is said of fakes where there are none", lambda: _unexpected_fake_facts(manifest, params))
        ]
    distinct = fill("verify/count_above", {"st": temp_table("v_st"), "sa": manifest.roles.sa_columns()})
    return [
        Check("every bucket lists distinct values", distinct),
        Check("as many values are fake as asked for", lambda: _wrong_sigma(manifest, params)),
        Check("each value is listed as often as the law of the fakes says", lambda: _differ_from_law(db, manifest)),
        Check("each value is as certain as stated", lambda: _wrong_certainty(db, manifest)),
        Check("values are as even as asked for", lambda: _uneven_values(db, manifest, params)),
        Check("no listed value is more certain than stated", lambda: _wrong_highest_certainty(db, manifest)),
    ]


def _wrong_sigma(manifest: Manifest, params: Bucketize) -> list[str]:
    stated_sigma = manifest.facts.get("fake_values", 0)
    return (
        []
        if stated_sigma == params.fake_values
        else [f"{stated_sigma} fake values in every bucket, asked for {params.fake_values}"]
    )


def _unexpected_fake_facts(manifest: Manifest, params: Bucketize) -> list[str]:
    """Return what a release without fake values should not state, one line each."""
    names = ("real", "certainty", "uneven", "excluded_real")
    stated = [f"{name} is stated" for name in names if manifest.facts.get(name) is not None]
    return [*_wrong_sigma(manifest, params), *stated]


def _read_listed(db: Relations, manifest: Manifest) -> list[tuple[str, int]]:
    """Text and listed records of every value, by code."""
    labels = [exp.cast(item, "VARCHAR") for item in manifest.roles.sa_columns()]
    rows = db.rows(exp.select(*labels, "records").from_(temp_table("v_values")).order_by("code"))
    return [(label_value(row[:-1]), int(row[-1] or 0)) for row in rows]


def _differ_from_law(db: Relations, manifest: Manifest) -> list[str]:
    """How often each value is listed follows from how often it is real."""
    facts, listed = manifest.facts, _read_listed(db, manifest)
    real, sizes = facts.get("real") or [], sorted((int(size), number) for size, number in facts["setting"].items())
    if len(real) != len(listed) or sum(real) != sum(size * number for size, number in sizes):
        return [f"{sum(real)} values are stated to be real, of {len(real)} kinds; {len(listed)} are listed"]
    wanted = times_listed(np.array(real), sizes, facts["fake_values"]).sum(axis=1).tolist()
    return [
        f"value {name}: listed {number} times, {times} by the law"
        for (name, number), times in zip(listed, wanted, strict=True)
        if number != times
    ]


def _wrong_certainty(db: Relations, manifest: Manifest) -> list[str]:
    """What is stated of single values, from how often each is listed and real."""
    facts, listed = manifest.facts, _read_listed(db, manifest)
    real, stated_certainty = facts.get("real"), facts.get("certainty")
    if real is None or stated_certainty is None or len(real) != len(listed):
        return [f"real and certainty are stated for {len(real or [])} of {len(listed)} values"]
    wrong = [
        f"value {name}: real {times_real} times, listed {number} times"
        for (name, number), times_real in zip(listed, real, strict=True)
        if times_real > number
    ]
    if sum(real) != manifest.published:
        wrong.append(f"{sum(real)} real values, {manifest.published} records")
    if wrong or not any(real):
        return wrong or ["nothing is real"]
    each = [
        (name, Fraction(times_real, number)) for (name, number), times_real in zip(listed, real, strict=True) if number
    ]
    some, mean = [of for _, of in each if of], Fraction(sum(real), sum(number for _, number in listed))
    recomputed = {"mean": mean, "lowest": min(some), "highest": max(some)}
    wrong += [
        f"{name} {stated_certainty[name]}, found {value}"
        for name, value in recomputed.items()
        if _parse_fraction(stated_certainty[name]) != value
    ]
    uneven = facts.get("uneven", {}).items()
    return wrong + [f"{name}: {value}" for name, value in uneven if (name, _parse_fraction(value)) not in each]


def _uneven_values(db: Relations, manifest: Manifest, params: Bucketize) -> list[str]:
    """The k most frequent values have at most sum min(S + sigma, k) b S/(S + sigma) records, for every k.

    Where that was not asked for, whatever has more than sum b S/(S + sigma) is named.
    """
    real, facts = manifest.facts.get("real") or [], manifest.facts
    if params.uneven_fakes == "state":
        each = sum((_real_share(size, number, facts) for size, number in facts["setting"].items()), Fraction(0))
        named_ = facts.get("uneven", {})
        names = (name for name, _ in _read_listed(db, manifest))
        return [
            f"{name}: too frequent"
            for name, times_real in zip(names, real, strict=False)
            if times_real > each and name not in named_
        ]
    wrong, total = [f"{name} is stated to be uneven" for name in facts.get("uneven", {})], 0
    for k, times_real in enumerate(sorted(real, reverse=True), start=1):
        total += times_real
        room = sum(
            min(int(size) + facts["fake_values"], k) * _real_share(size, number, facts)
            for size, number in facts["setting"].items()
        )
        if total > room:
            wrong.append(f"the {k} most frequent values have {total} records, {float(room):.1f} at most can be hidden")
    return wrong


def _real_share(size: str, buckets: int, facts: dict[str, Any]) -> Fraction:
    return Fraction(buckets * int(size), int(size) + facts["fake_values"])


def _wrong_highest_certainty(db: Relations, manifest: Manifest) -> list[str]:
    """The law's probabilities for the published lists (``chances.scaled``): the highest is the one that is stated."""
    facts, real = manifest.facts, manifest.facts.get("real") or []
    stated_highest = (facts.get("certainty") or {}).get("anywhere")
    if manifest.parameters.get("exclude_negative"):
        return (
            []
            if stated_highest is None
            else [f"anywhere {stated_highest} is stated of fakes that depend on associations"]
        )
    holes: Holes = {
        "st": temp_table("v_st"),
        "sizes": temp_table("v_sizes"),
        "values": temp_table("v_values"),
        "same_value": same_columns("st", "v", manifest.roles.sa_keys),
    }
    rows = db.arrow(fill("verify/entries", holes))
    bid, code, size = (rows[name].to_numpy().astype(np.int64) for name in ("bid", "code", "size"))
    if stated_highest is None or not len(bid) or code.max() >= len(real):
        return ["anywhere is not stated"]
    buckets = np.unique(bid, return_inverse=True)[1]
    entries = Entries(buckets, code, (int(buckets.max()) + 1, len(real)))
    number = np.array(real)
    share = size / (size + facts["fake_values"])
    ratio = number / np.maximum(entries.sum_amounts(share)[1], 1e-9)
    fake = entries.lengths[1] - number
    chances = scale_chances(entries, 1 - share * ratio[code], np.full(entries.shape[0], facts["fake_values"]), fake)
    highest = float((1 - chances).max())
    return (
        []
        if highest - 1e-6 <= stated_highest <= highest + CLOSE
        else [f"anywhere {stated_highest}, found {highest:.6f}"]
    )


def fake_source_checks(manifest: Manifest, source: Records, params: Bucketize) -> list[Check]:
    """The listed values against the source's, where some are fake: more of each, and as many of them real."""
    roles = manifest.roles
    holes: Holes = {
        "qit": temp_table("v_qit"),
        "st": temp_table("v_st"),
        "records": temp_table("records"),
        "qi": roles.qi_columns(),
        "sa": roles.sa_columns(),
        "sa_real": roles.sa_columns("r"),
        "fakes": sigma_literal(manifest),
        "same_qi": same_columns("q", "r", roles.qi_keys),
        "same_value": same_columns("st", "k", roles.sa_keys),
    }
    published = count_combinations(temp_table("v_st"), roles.sa_columns(), column("count"))
    missing = exceeding_combinations(
        roles.sa_columns(), published, count_combinations(temp_table("records"), roles.sa_columns())
    )
    return [
        *([] if params.excess == "suppress" else [Check("every sensitive value of the source is listed", missing)]),
        Check("no more values of a bucket are fake than stated", fill("verify/unexplained", holes)),
        Check("values are real as often as in the source", lambda: _real_differs_from_source(manifest, source, params)),
    ]


def _real_differs_from_source(manifest: Manifest, source: Records, params: Bucketize) -> list[str]:
    """What is stated to be real of each value against the source's counts; fewer, if some are left out."""
    real = manifest.facts.get("real")
    if real is None:
        return []
    if len(real) != len(source.counts):
        return [f"{len(real)} values, the source has {len(source.counts)}"]
    less = params.excess == "suppress"
    return [
        f"value {name}: real {times_real} times, {has} in the source"
        for name, times_real, has in zip(source.labels, real, source.counts, strict=True)
        if times_real > has or (times_real < has and not less)
    ]


def _parse_fraction(value: Any) -> Fraction | None:
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None


# Buckets --------------------------------------------------------------------------------------------------------------
# The checks of a bucketized release. They share nothing with the search: only the published tables, the manifest's
# claims, SQL, and exact fractions.

SQL: tuple[str, ...] = ("core/", "bucketize/", "verify/")  # what makes and checks a release


def make_checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    roles = manifest.roles
    _name_tables(db, manifest, database)
    sizes, st, qit, values = temp_table("v_sizes"), temp_table("v_st"), temp_table("v_qit"), temp_table("v_values")
    channel = temp_table("v_channel")
    alike, counted = temp_table("v_kinds"), _as_one(roles.sa_columns())
    threshold_holes: Holes = {
        "st": alike,
        "sizes": sizes,
        "thresholds": values,
        "sa": roles.sa_columns(),
        "sa_worst": roles.sa_columns("w"),
        "sa_st": roles.sa_columns("st"),
        "same_threshold": same_columns("w", "t", roles.sa_keys),
        "same_value": same_columns("st", "b", roles.sa_keys),
    }
    channel_holes: Holes = {
        "st": counted,
        "sizes": sizes,
        "channel": channel,
        "values": values,
        "sa_st": roles.sa_columns("st"),
        "same_value": same_columns("p", "v", roles.sa_keys),
        "fakes": sigma_literal(manifest),
    }
    return [
        *fake_checks(db, manifest, read_parameters(manifest)),
        *group_checks(db, manifest, read_parameters(manifest)),
        Check("every bucket obeys every threshold", fill("verify/thresholds_hold", threshold_holes)),
        Check(
            "thresholds are fractions in (0, 1]",
            fill("verify/thresholds_in_range", {"thresholds": values, "sa": roles.sa_columns()}),
        ),
        Check(
            "thresholds follow the stated rule",
            lambda: _differ_from_rule(db, manifest),
            lambda: _explain_rule(manifest),
        ),
        Check("values that are certain were allowed", lambda: _unallowed_certain(db, manifest)),
        Check("values and their records are those of ST", values_true(counted, values, roles)),
        Check("the channel agrees with ST in its sums", fill("verify/channel_sums", channel_holes)),
        Check(
            "the channel lists meetings of values",
            fill("verify/channel_positive", {"channel": channel, "values": values}),
        ),
        Check(
            "the channel's rows lie in order, once each", in_order(channel, ["size", "first", "second"], strict=True)
        ),
        *_estimator_checks(db, manifest),
        Check("the values' rows lie in order", in_order(values, ["code", "records"], strict=True)),
        Check("counts are positive", fill("verify/counts_positive", {"st": st, "sa": roles.sa_columns()})),
        Check("QIT and ST agree on every bucket", _bucket_by_bucket(manifest.facts["setting"], qit)),
        Check(
            "setting is as stated",
            fill("verify/setting_true", {"sizes": sizes, "claimed": temp_table("v_claimed")}),
        ),
        Check("QIT rows lie in canonical order", in_order(qit, ["bid", *roles.qi_keys], strict=False)),
        Check("ST rows lie in canonical order, once each", in_order(st, ["bid", *roles.sa_keys], strict=True)),
        Check("loss and bounds are as stated", lambda: _wrong_claims(manifest)),
    ]


def _estimator_checks(db: Relations, manifest: Manifest) -> list[Check]:
    """Whether plain SQL counts by the linear estimator follows from the sizes, and its weights from the channel."""
    weights, facts = temp_table("v_estimator"), manifest.facts

    def wrong_weighting() -> list[str]:
        ((values,),) = db.rows(exp.select(exp.Count(this=exp.Star())).from_(temp_table("v_values")))
        expected = choose_weighting(facts["setting"], int(values))
        return [] if facts["weighting"] == expected else [f"weighting {facts['weighting']}, expected {expected}"]

    checks = [Check("the weighted view is the one of its size", wrong_weighting)]
    if not beliefs.has_estimator(facts):
        named = exp.select("code").from_(temp_table("v_values")).where(column("deviation").is_(exp.null()).not_())
        return [*checks, Check("no value states a deviation", named)]
    stated, channel = all_rows(weights), all_rows(temp_table("v_channel"))
    deviations = exp.select("deviation").from_(temp_table("v_values")).order_by("code")
    return [
        *checks,
        Check(
            "the linear estimator follows from the channel",
            lambda: differ_from_channel(db.arrow(stated), db.arrow(deviations), db.arrow(channel), facts),
        ),
        Check("the estimator's rows lie in order, once each", in_order(weights, ["value", "listed"], strict=True)),
    ]


def _as_one(sensitive: list[exp.Expr]) -> exp.Subquery:
    """ST by ``v_kinds``: all records of a kind as if they were in one bucket of its size, where only sums matter."""
    listed = exp.select("bid", *sensitive, alias_as(column("records"), "count"))
    return listed.from_(temp_table("v_kinds")).subquery("counted")


def _bucket_by_bucket(setting: Mapping[str, int], qit: exp.Table) -> exp.Query:
    """Rows of QIT in another bucket than the setting, which ST has, has there."""
    bid, case, bucket, place = column("bid", "r"), exp.Case(), 0, 0
    for size, buckets in sorted((int(size), buckets) for size, buckets in setting.items()):
        within = exp.Mul(
            this=exp.paren(exp.Sub(this=bid.copy(), expression=_sql_number(bucket))), expression=_sql_number(size)
        )
        bucket, begin = bucket + buckets, place
        place += size * buckets
        case = case.when(
            exp.LT(this=bid.copy(), expression=_sql_number(bucket)), exp.Add(this=within, expression=_sql_number(begin))
        )
    holes: Holes = {
        "qit": qit,
        "stored": [],
        "first": case,
        "size": size_of_bucket(dict(setting), bid),
        "records": _sql_number(place),
    }
    return fill("verify/bucket_by_bucket", holes)


def _sql_number(value: int) -> exp.Expr:
    return exp.cast(exp.Literal.number(value), "BIGINT")


def _name_tables(db: Relations, manifest: Manifest, database: str | None) -> None:
    """Give the release's tables internal names: v_qit, v_st, v_values, v_channel, with v_sizes and v_claimed."""
    roles, sa_names = manifest.roles, manifest.roles.by_sa
    db.create_view(
        "v_qit", exp.select(*roles.qi_in(), *roles.by_qi.select_columns("bid")).from_(table("qit", database))
    )
    db.create_view(
        "v_st", exp.select(*roles.sa_in(), *sa_names.select_columns("bid", "count")).from_(table("st", database))
    )
    listed = exp.select(
        *sa_names.select_columns("code"),
        *roles.sa_in(),
        *sa_names.select_columns("records", "numerator", "denominator", "deviation"),
    )
    db.create_view("v_values", listed.from_(table("privsql_values", database)))
    for name in ("channel", "estimator")[: 2 if beliefs.has_estimator(manifest.facts) else 1]:
        db.create_view(f"v_{name}", all_rows(table(f"privsql_{name}", database)))
    size = size_of_bucket(manifest.facts["setting"], column("bid", "st"))
    db.create_table(
        "v_kinds", fill("verify/kinds", {"st": temp_table("v_st"), "sa": roles.sa_columns("st"), "size": size})
    )
    db.create_table(
        "v_sizes", fill("verify/bucket_sizes", {"st": temp_table("v_st"), "fakes": sigma_literal(manifest)})
    )
    db.register_arrow("v_claimed", _claimed_setting(manifest.facts))


def long_checks(manifest: Manifest) -> list[Check]:
    """What ``verify`` checks beyond ``make_checks``: implied by the way of publishing, and longer."""
    holes: Holes = {
        "st": temp_table("v_st"),
        "sizes": temp_table("v_sizes"),
        "channel": temp_table("v_channel"),
        "values": temp_table("v_values"),
        "same_value": same_columns("st", "v", manifest.roles.sa_keys),
    }
    return [Check("the channel is that of ST in every entry", fill("verify/channel_true", holes))]


def source_checks(db: Relations, manifest: Manifest, source: Records, params: Bucketize) -> list[Check]:
    """The checks against the source, prepared as ``records``, after ``make_checks`` has named the release's tables."""
    roles, wanted = manifest.roles, compute_thresholds(db, source, params.threshold)
    compare = differing_combinations if params.excess == "refuse" else exceeding_combinations
    quasi = compare(
        roles.qi_columns(),
        count_combinations(temp_table("records"), roles.qi_columns()),
        count_combinations(temp_table("v_qit"), roles.qi_columns()),
    )
    return [
        Check(
            "parameters are those of the specification",
            lambda: _differing_parameters(read_parameters(manifest), params),
        ),
        Check("thresholds are those of the specification", lambda: _differing_thresholds(db, wanted)),
        *group_source_checks(db, manifest, source, params),
        *_value_checks(manifest, source, params),
        Check("quasi-identifiers are the source's", quasi),
        _joint_check(db, manifest, params),
    ]


def _differing_parameters(stated: Bucketize, wanted: Bucketize) -> list[str]:
    """Parameters but for the publisher's word that certain values are meant, which a flag may have given."""
    return differ_from_spec(stated, wanted.model_copy(update={"allow_certain": stated.allow_certain}))


def _joint_check(db: Relations, manifest: Manifest, params: Bucketize) -> Check:
    """That the source's records can lie in these buckets, quasi-identifiers and values together."""
    once = cache(partial(compare_jointly, db, manifest, fakes=params.fake_values, left_out=params.excess == "suppress"))
    name = "the buckets can have come from the source's records, quasi-identifiers and values together"
    return Check(name, lambda: once().wrong, lambda: once().compared)


def _value_checks(manifest: Manifest, source: Records, params: Bucketize) -> list[Check]:
    """The listed values against the source's: the same; fewer, if some are left out; or more, if some are fake."""
    if params.fake_values:
        return fake_source_checks(manifest, source, params)
    roles, compare = manifest.roles, differing_combinations if params.excess == "refuse" else exceeding_combinations
    published = count_combinations(temp_table("v_st"), roles.sa_columns(), column("count"))
    query = compare(roles.sa_columns(), count_combinations(temp_table("records"), roles.sa_columns()), published)
    return [Check("sensitive values are the source's", query)]


def _differing_thresholds(db: Relations, wanted: Sequence[Fraction]) -> list[str]:
    """Compare the published thresholds with those that the specification gives."""
    listed = exp.select("numerator", "denominator").from_(temp_table("v_values")).order_by("code")
    stated = [Fraction(int(top), int(bottom)) if top and bottom else None for top, bottom in db.rows(listed)]
    if len(stated) != len(wanted):
        return [f"{len(stated)} thresholds, the source has {len(wanted)} values"]
    pairs = enumerate(zip(stated, wanted, strict=True))
    return [f"value {code}: stated {s}, asked for {a}" for code, (s, a) in pairs if s != a]


def _claimed_setting(facts: dict[str, Any]) -> pa.Table:
    sizes = np.array([int(size) for size in facts["setting"]], dtype=np.int64)
    buckets = np.array(list(facts["setting"].values()), dtype=np.int64)
    return pa.table({"size": sizes, "buckets": buckets, "first": np.cumsum(buckets) - buckets})


def read_parameters(manifest: Manifest) -> Bucketize:
    """The parameters of a release; ``UsageError`` if these or its facts are not what a bucketized release states."""
    return read_stated_parameters(manifest, BucketizeFacts, Bucketize, "plan")


def _unallowed_certain(db: Relations, manifest: Manifest) -> list[str]:
    """Values that are certain, though that was neither written nor allowed."""
    params, roles, values = read_parameters(manifest), manifest.roles, temp_table("v_values")
    if beliefs.allows_certainty(params):
        return []
    texts = [exp.cast(item, "VARCHAR") for item in roles.sa_columns()]
    rows = db.rows(exp.select(*texts, "numerator", "denominator").from_(values).order_by("code"))
    shares = [Fraction(int(top or 0), int(bottom or 1)) for *_, top, bottom in rows]
    excused = beliefs.allowed_values(params, [label_value(row[:-2]) for row in rows], shares)
    certain = beliefs.count_certain(db, temp_table("v_st"), values, manifest.facts["setting"], roles, excused)
    return [f"{name}: certain for {records} records" for name, records in certain.items()]


def _explain_rule(manifest: Manifest) -> str:
    is_queried = read_parameters(manifest).threshold.query is not None
    return "a query gave them: compared with it only where the source is given" if is_queried else ""


def _differ_from_rule(db: Relations, manifest: Manifest) -> list[str]:
    """Recompute every threshold from the manifest's rule and the counts of ST, in fractions."""
    params = read_parameters(manifest)
    if params.threshold.query is not None:
        return []  # given value by value; the table itself is the statement
    roles = manifest.roles
    labels = [
        alias_as(exp.cast(item, "VARCHAR"), key)
        for item, key in zip(roles.sa_columns("st"), roles.sa_keys, strict=True)
    ]
    holes: Holes = {
        "st": _as_one(roles.sa_columns()),
        "thresholds": temp_table("v_values"),
        "labels": labels,
        "sa": roles.sa_columns("st"),
        "same_value": same_columns("st", "t", roles.sa_keys),
    }
    rows = db.rows(fill("verify/value_counts", holes))
    texts = [" ".join(str(part) for part in row[:-3]) for row in rows]
    if not rows or not all(row[-3] and row[-3] > 0 for row in rows):
        return ["a value has no records"]
    expected = _expected_thresholds(params, rows)
    if isinstance(expected, str):
        return [expected]
    return [
        f"value {label}: stated {row[-2]}/{row[-1]}, the rule gives {value}"
        for label, row, value in zip(texts, rows, expected, strict=True)
        if row[-2] is None or not row[-1] or Fraction(int(row[-2]), int(row[-1])) != value
    ]


def _expected_thresholds(params: Bucketize, rows: list[tuple[Any, ...]]) -> tuple[Fraction, ...] | str:
    try:
        return params.threshold.thresholds_for([label_value(row[:-3]) for row in rows], [int(row[-3]) for row in rows])
    except ValueError as error:
        return str(error)


def _wrong_claims(manifest: Manifest) -> list[str]:
    """Arithmetic of the manifest: records, loss, bounds, sizes."""
    facts, params = manifest.facts, read_parameters(manifest)
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
            params.min_bucket_size <= min(setting)
            and max(setting) <= max(params.max_bucket_size, params.min_bucket_size)
        ),
        f"layout {facts['layout']}": facts["layout"] == params.effective_layout,
        f"left out {facts.get('left_out', 0)}": facts.get("left_out", 0) <= (manifest.suppressed or 0),
        f"algorithm {manifest.algorithm}": manifest.algorithm == params.algorithm,
        f"fake values {facts.get('fake_values', 0)}": facts.get("fake_values", 0) == params.fake_values,
    }
    return [wrong for wrong, holds in claims.items() if not holds]
