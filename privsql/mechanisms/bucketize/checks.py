"""Check a bucketized release, its fake values and its bounds on groups of values.

The checks share nothing with the search: they read the published tables and the manifest, and recompute the rest.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, alias_as, column, fill, temp_table
from privsql.exact import fraction_text
from privsql.mechanisms.bucketize.beliefs import SensitiveTable
from privsql.mechanisms.bucketize.bounds import (
    GroupBound,
    SensitiveColumn,
    allowed_values,
    compute_bounds,
    compute_thresholds,
    make_bounds,
    read_columns,
    stated_bounds,
)
from privsql.mechanisms.bucketize.estimator import (
    choose_weighting,
    differ_from_channel,
    find_even_shares,
    find_linear_estimator,
    make_channel,
)
from privsql.mechanisms.bucketize.fake_law import Entries, scale_chances, times_listed
from privsql.mechanisms.bucketize.tables import size_of_bucket
from privsql.model.checks import ONE, Check, VerifiedBound, compare_rows, in_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.bucketize.parameters import Bucketize, BucketizeFacts
    from privsql.model.checks import CheckedRelease
    from privsql.model.records import Records

    BucketRelease = CheckedRelease[Bucketize, BucketizeFacts]

# Groups of values -----------------------------------------------------------------------------------------------------


def group_checks(release: BucketRelease) -> list[Check]:
    """Return the checks of bounds on groups of values; empty if there are none and none were asked for."""
    if not release.facts.bounds and not release.params.is_bounding:
        return []
    queried = ", ".join(name for name, one in release.params.components.items() if one.query is not None)
    return [
        *release.list_checks({"every bucket obeys every bound on groups": _exceeded_bounds}),
        Check(
            "bounds on groups follow from what was asked",
            partial(_wrong_bounds, release),
            limit=lambda: (
                f"queries gave those of {queried}, and only verify with the source compares them" if queried else ""
            ),
        ),
    ]


def list_sensitive(release: BucketRelease) -> SensitiveTable:
    """Return ST and the table of values of a release as an object that measures the highest beliefs."""
    return SensitiveTable(release.db, release.roles, release.facts, release.view("st"), release.view("values"))


def list_bounds(release: BucketRelease) -> list[VerifiedBound]:
    """Return the bound of every group, then the threshold of every value, each with its largest share of a bucket."""
    listed = release.fill_query("verify/bucket_values", st=release.view("kinds"), same_value="st v").subquery()
    held = exp.select("bid", "code", alias_as(column("n"), "held")).from_(listed).subquery()
    most = list_sensitive(release).find_highest(held, column("code", "h"))
    rows = release.list_values("numerator", "denominator", "records")
    even = find_even_shares(make_channel(release.read_view("channel"), release.facts).channel)
    return [
        *_bound_groups(release),
        *(
            VerifiedBound(
                name,
                fraction_text(Fraction(int(top), int(bottom))),
                fraction_text(most[str(code)]),
                None if release.facts.fake_values else records,  # fakes leave open how many records are real
                float(even[code]),
            )
            for code, (name, top, bottom, records) in enumerate(rows)
        ),
    ]


def _bound_groups(release: BucketRelease) -> list[VerifiedBound]:
    """Return the bound of every group of values, each with the group's largest share of a bucket."""
    return [
        VerifiedBound(one.name, fraction_text(one.threshold), fraction_text(most), group=True)
        for one, most in list_sensitive(release).measure_bounds()
    ]


def _exceeded_bounds(release: BucketRelease) -> list[str]:
    """Return the bounds on groups that some bucket exceeds, one line each; compared in exact fractions."""
    return [
        f"{one.value}: {one.found} of a bucket, at most {one.bound}"
        for one in _bound_groups(release)
        if Fraction(one.found) > Fraction(one.bound)
    ]


def _wrong_bounds(release: BucketRelease) -> list[str]:
    """Recompute the bounds on groups from parameters and listed values, and return those that are stated otherwise.

    Thresholds that a publisher's query gave are taken as stated, because the query can't be run without the source.
    """
    counts = [number for _, number in _count_listed(release)]
    if not counts or min(counts) <= 0:
        return ["a value has no records"]
    stated = stated_bounds(release.facts)
    thresholds = {(one.name, one.members): one.threshold for one in stated}

    def query_stated(part: SensitiveColumn, _: str) -> list[Fraction]:
        parts = [part.bound_part(rank, Fraction(1)) for rank in range(len(part.labels))]
        return [thresholds.get((one.name, one.members), one.threshold) for one in parts]

    columns = read_columns(release.db, release.view("values"), release.roles)
    outside = [f"{one.name}: threshold {one.threshold} is above 1" for one in stated if one.threshold > 1]
    return _differing_bounds(stated, list(make_bounds(release.params, columns, counts, query_stated))) + outside


def _differing_bounds(stated: Sequence[GroupBound], wanted: Sequence[GroupBound]) -> list[str]:
    """Return the bounds that are stated but not wanted, or wanted but not stated, one line each."""
    lines = []
    for word, some, others in (("stated", stated, set(wanted)), ("not", wanted, set(stated))):
        for one in (bound for bound in some if bound not in others):
            codes = ", ".join([*map(str, one.members[:5]), *([".."] if len(one.members) > 5 else [])])
            lines.append(f"{one.name}: {word} {one.threshold} of values {{{codes}}}")
    return lines


# Fakes ----------------------------------------------------------------------------------------------------------------

CLOSE = 2e-4  # the stated certainty of single buckets is rounded up to a multiple of 1e-4


def fake_checks(release: BucketRelease) -> list[Check]:
    """Return the checks of fake values; without fakes, the check that the release states nothing about any."""
    if not release.facts.fake_values:
        return release.list_checks({"a release without fakes states none": _unexpected_fake_facts})
    return release.list_checks(
        {
            "every bucket lists distinct values": release.fill_query("verify/count_above"),
            "the number of fake values is the specified one": _wrong_sigma,
            "each value is listed as often as the law of the fakes says": _differ_from_law,
            "each value is as certain as stated": _wrong_certainty,
            "values are as even as specified": _uneven_values,
            "no listed value is more certain than stated": _wrong_highest_certainty,
        }
    )


def _wrong_sigma(release: BucketRelease) -> list[str]:
    stated, wanted = release.facts.fake_values, release.params.fake_values
    return [] if stated == wanted else [f"{stated} fake values in every bucket, specified {wanted}"]


def _unexpected_fake_facts(release: BucketRelease) -> list[str]:
    """Return the facts on fakes that a release without fakes states, one line each."""
    facts = release.facts
    names = [name for name in ("real", "certainty", "uneven", "excluded_real") if name in facts.model_fields_set]
    return [*_wrong_sigma(release), *(f"{name} is stated" for name in names if getattr(facts, name) is not None)]


def _count_listed(release: BucketRelease) -> list[tuple[str, int]]:
    """Return (text, how often it is listed) of every value, by code."""
    return [(name, int(records or 0)) for name, records in release.list_values("records")]


def _differ_from_law(release: BucketRelease) -> list[str]:
    """Return the values that buckets list more or less often than their stated number of records requires.

    The rule: a value with o records is listed about o (S + sigma)/S times in buckets of size S with sigma fakes.
    """
    facts, listed = release.facts, _count_listed(release)
    real, sizes = facts.real or [], sorted(facts.sizes)
    if len(real) != len(listed) or sum(real) != sum(size * number for size, number in sizes):
        return [f"{sum(real)} values are stated to be real, of {len(real)} kinds; {len(listed)} are listed"]
    wanted = times_listed(np.array(real), sizes, facts.fake_values).sum(axis=1).tolist()
    return [
        f"value {name}: listed {number} times, {times} by the law"
        for (name, number), times in zip(listed, wanted, strict=True)
        if number != times
    ]


def _wrong_certainty(release: BucketRelease) -> list[str]:
    """Recompute how certain each listed value is to be real, and return what is stated otherwise, one line each."""
    facts, listed = release.facts, _count_listed(release)
    real, stated = facts.real, facts.certainty
    if real is None or stated is None or len(real) != len(listed):
        return [f"real and certainty are stated for {len(real or [])} of {len(listed)} values"]
    rows = [(name, times, number) for (name, number), times in zip(listed, real, strict=True)]
    wrong = [
        f"value {name}: real {times} times, listed {number} times" for name, times, number in rows if times > number
    ]
    if sum(real) != release.manifest.published:
        wrong.append(f"{sum(real)} real values, {release.manifest.published} records")
    if wrong or not any(real):
        return wrong or ["nothing is real"]
    each = [(name, Fraction(times, number)) for name, times, number in rows if number]
    some, mean = [of for _, of in each if of], Fraction(sum(real), sum(number for *_, number in rows))
    for name, value in {"mean": mean, "lowest": min(some), "highest": max(some)}.items():
        if getattr(stated, name) != fraction_text(value):
            wrong.append(f"{name} {getattr(stated, name)}, found {value}")
    found = {(name, fraction_text(of)) for name, of in each}
    return wrong + [f"{name}: {value}" for name, value in facts.uneven.items() if (name, value) not in found]


def _uneven_values(release: BucketRelease) -> list[str]:
    """Return the values that fakes can't hide as well as others, although the release does not state it.

    Let there be b buckets of each size S, with sigma fakes in each. Fakes hide all values evenly under one condition:
    for every k, the k most frequent values have at most sum min(S + sigma, k) b S/(S + sigma) records. If the publisher
    allowed uneven values, every value with more than sum b S/(S + sigma) records has to be stated.
    """
    facts = release.facts
    real, sigma = facts.real or [], facts.fake_values
    shares = {size: Fraction(buckets * size, size + sigma) for size, buckets in facts.sizes}
    if release.params.uneven_fakes == "state":
        each, listed = sum(shares.values()), zip(_count_listed(release), real, strict=False)
        return [f"{name}: too frequent" for (name, _), times in listed if times > each and name not in facts.uneven]
    wrong, total = [f"{name} is stated to be uneven" for name in facts.uneven], 0
    for k, times in enumerate(sorted(real, reverse=True), start=1):
        total += times
        room = sum(min(size + sigma, k) * share for size, share in shares.items())
        if total > room:
            wrong.append(f"the {k} most frequent values have {total} records, {float(room):.1f} at most can be hidden")
    return wrong


def _wrong_highest_certainty(release: BucketRelease) -> list[str]:
    """Recompute the highest certainty of a value in a single bucket from the lists; return a line if it differs."""
    facts, real = release.facts, release.facts.real or []
    stated = facts.certainty.anywhere if facts.certainty else None
    if release.params.exclude_negative:
        return [] if stated is None else [f"anywhere {stated} is stated of fakes that depend on associations"]
    rows = release.db.arrow(release.fill_query("verify/bucket_values", same_value="st v")).sort_by("bid")
    if any(rows[name].null_count for name in ("bid", "code")):
        return ["a bucket or a value of ST is missing"]
    bid, code = (rows[name].to_numpy().astype(np.int64) for name in ("bid", "code"))
    if stated is None or not len(bid) or code.max() >= len(real):
        return ["anywhere is not stated"]
    buckets, times = np.unique(bid, return_inverse=True, return_counts=True)[1:]
    entries, number = Entries(buckets, code, (len(times), len(real))), np.array(real)
    share = ((times - facts.fake_values) / times)[buckets]
    ratio = number / np.maximum(entries.sum_amounts(share)[1], 1e-9)
    of_rows, of_kinds = np.full(len(times), facts.fake_values), entries.lengths[1] - number
    highest = float((1 - scale_chances(entries, 1 - share * ratio[code], of_rows, of_kinds)).max())
    return [] if highest - 1e-6 <= stated <= highest + CLOSE else [f"anywhere {stated}, found {highest:.6f}"]


def _real_differs_from_source(source: Records, params: Bucketize, release: BucketRelease) -> list[str]:
    """Return the values whose stated number of records is not that of the source, one line each.

    If records may be left out, a smaller number is right, too.
    """
    real = release.facts.real
    if real is None:
        return []
    if len(real) != len(source.counts):
        return [f"{len(real)} values, the source has {len(source.counts)}"]
    return [
        f"value {name}: real {times} times, {has} in the source"
        for name, times, has in zip(source.labels, real, source.counts, strict=True)
        if times > has or (times < has and params.excess != "suppress")
    ]


# Buckets --------------------------------------------------------------------------------------------------------------


def make_checks(release: BucketRelease) -> list[Check]:
    """Return the checks of a release that do not need its source.

    They make three relations that other checks read: ``v_kinds`` (rows of ST that differ in the bucket only, put
    together), ``v_sizes`` (the size of each bucket) and ``v_claimed`` (the bucket sizes that the manifest states).
    """
    facts, roles, query = release.facts, release.roles, release.fill_query
    sigma = exp.Literal.number(facts.fake_values)
    size = size_of_bucket(facts.sizes, column("bid", "st"))
    release.db.create_table("v_kinds", query("verify/kinds", sa=roles.sa_columns("st"), size=size))
    release.db.create_table("v_sizes", query("verify/bucket_sizes", fakes=sigma))
    sizes, buckets = np.array(facts.sizes, dtype=np.int64).T
    claimed = {"size": sizes, "buckets": buckets, "first": np.cumsum(buckets) - buckets}
    release.db.register_arrow("v_claimed", pa.table(claimed))

    st, qit, values, channel, kinds = map(release.view, ("st", "qit", "values", "channel", "kinds"))
    listed = exp.select("bid", *roles.sa_columns(), alias_as(column("records"), "count"))
    counted = listed.from_(kinds).subquery("counted")  # as if equal rows of equal buckets were one row
    is_queried = release.params.threshold.query is not None
    limit = "a query gave them, and only verify with the source compares them with it" if is_queried else ""
    hold = query(
        "verify/thresholds_hold",
        st=kinds,
        thresholds=values,
        sa_worst=roles.sa_columns("w"),
        same_threshold="w t",
        same_value="st b",
    )
    sums = query("verify/channel_sums", st=counted, fakes=sigma.copy(), same_value="p v")
    return [
        *fake_checks(release),
        *group_checks(release),
        *release.list_checks(
            {
                "every bucket obeys every threshold": hold,
                "thresholds are fractions in (0, 1]": query("verify/thresholds_in_range", thresholds=values),
            }
        ),
        Check("thresholds follow the stated rule", partial(_differ_from_rule, release), limit=lambda: limit),
        *release.list_checks(
            {
                "values that are certain were allowed": _unallowed_certain,
                "values and their numbers of records agree with ST": query("verify/values_true", st=counted),
                "sums of the channel agree with ST": sums,
                "entries of the channel are positive": query("verify/channel_positive"),
                "the channel's rows lie in order, once each": in_order(
                    channel, ["size", "first", "second"], strict=True
                ),
                "the weighted view has the form that its size requires": _wrong_weighting,
                "the linear estimator follows from the channel": _wrong_estimator,
                "the estimator's rows lie in order, once each": in_order(
                    release.view("estimator"), ["value", "listed"], strict=True
                ),
                "the values' rows lie in order": in_order(values, ["code", "records"], strict=True),
                "counts are positive": query("verify/counts_positive"),
                "QIT and ST agree on every bucket": _bucket_by_bucket(facts.sizes, qit),
                "setting is as stated": query("verify/setting_true"),
                "QIT rows lie in canonical order": in_order(qit, ["bid", *roles.qi_keys], strict=False),
                "ST rows lie in canonical order, once each": in_order(st, ["bid", *roles.sa_keys], strict=True),
                "loss and bounds are as stated": _wrong_claims,
            }
        ),
    ]


def _wrong_weighting(release: BucketRelease) -> list[str]:
    """Return a line if the release states another weighting of its view ``weighted`` than its size requires.

    The linear estimator has a weight for each pair of values. Its weights are required if there are few values, or
    enough records for so many weights. Otherwise, the weight of a value has to be its share of the bucket.
    """
    expected = choose_weighting(release.facts.sizes, len(release.list_values()))
    stated = release.facts.weighting
    return [] if stated == expected else [f"weighting {stated}, expected {expected}"]


def _wrong_estimator(release: BucketRelease) -> list[str]:
    """Recompute the published weights of the linear estimator and their standard deviations; return the differences.

    They follow from table ``privsql_channel``: how often each pair of values is listed by the same bucket.
    """
    deviations = exp.select("deviation").from_(release.view("values")).order_by("code")
    channel = make_channel(release.read_view("channel"), release.facts).channel
    estimator = find_linear_estimator(channel, release.facts)
    return differ_from_channel(release.read_view("estimator"), release.db.arrow(deviations), estimator)


def _bucket_by_bucket(setting: Sequence[tuple[int, int]], qit: exp.Table) -> exp.Query:
    """Return the query for rows of QIT that lie in another bucket than their position says.

    The rows of QIT lie bucket by bucket, by rising size, so the bucket sizes determine the bucket of every position.
    """

    def number(value: int) -> exp.Expr:
        return exp.cast(exp.Literal.number(value), "BIGINT")

    bid, case, bucket, place = column("bid", "r"), exp.Case(), 0, 0
    for size, buckets in sorted(setting):
        within = exp.Mul(this=exp.paren(exp.Sub(this=bid.copy(), expression=number(bucket))), expression=number(size))
        bucket, first = bucket + buckets, exp.Add(this=within, expression=number(place))
        place += size * buckets
        case = case.when(exp.LT(this=bid.copy(), expression=number(bucket)), first)
    size_of = size_of_bucket(setting, bid)
    holes: Holes = {"qit": qit, "stored": [], "first": case, "size": size_of, "records": number(place)}
    return fill("verify/bucket_by_bucket", holes)


def long_checks(release: BucketRelease) -> list[Check]:
    """Return the check that only ``verify`` runs, not ``publish``, because it takes longer.

    It compares the published table of pairs of values with ST.
    """
    return release.list_checks({"entries of the channel agree with ST": _wrong_entries})


MOST_ENTRIES = 2**22  # pairs of values are counted in a matrix of at most so many entries


def _wrong_entries(release: BucketRelease) -> list[str] | exp.Query:
    """Recount how often each pair of values shares a bucket, and return where table ``privsql_channel`` differs.

    In an engine that keeps the order of rows, pairs of few values are counted in numpy. Otherwise the result is a query
    that finds the differences.
    """
    values = len(release.list_values())
    if not release.db.keeps_order or values**2 * len(release.facts.sizes) > MOST_ENTRIES:
        return release.fill_query("verify/channel_true", same_value="st v")
    listed = release.db.arrow(release.fill_query("verify/bucket_values", same_value="st v"))
    if any(listed[name].null_count for name in ("bid", "code", "n")):
        return ["a bucket, a value or a count of ST is missing"]
    bid, code, n = (listed[name].to_numpy().astype(np.int64) for name in ("bid", "code", "n"))
    order = np.argsort(bid * values + code)
    bid, code, n = bid[order], code[order], n[order]
    begins = np.flatnonzero(np.append(True, bid[1:] != bid[:-1])[: len(bid)])
    kinds = np.diff(begins, append=len(bid))  # different values of each bucket
    sizes = np.add.reduceat(n, begins) - release.facts.fake_values if len(n) else n
    stated = [release.read_view("channel")[name].to_numpy() for name in ("size", "first", "second", "pairs")]
    wrong = [f"size {size} is none of the buckets'" for size in np.setdiff1d(stated[0], sizes).tolist()]
    if (
        len(stated[1])
        and not 0 <= min(stated[1].min(), stated[2].min()) <= max(stated[1].max(), stated[2].max()) < values
    ):
        return ["a code is none of the values'"]
    for size in np.unique(sizes).tolist():
        met = np.zeros(values**2, dtype=np.int64)
        for number in np.unique(kinds[sizes == size]).tolist():
            rows = begins[(sizes == size) & (kinds == number), None] + np.arange(number)
            codes, counts = code[rows].T, n[rows].T  # (values of a bucket, buckets)
            for first in range(number):
                for second in range(first, number):
                    at, times = codes[first] * values + codes[second], counts[first] * counts[second]
                    weights = None if times.max() == 1 else times  # sums of doubles are exact below 2^53
                    met += np.bincount(at, weights, values**2).astype(np.int64)
        here = stated[0] == size
        np.subtract.at(met, stated[1][here] * values + stated[2][here], stated[3][here])
        wrong += [
            f"size={size}, first={at // values}, second={at % values}, surplus={-met[at]}" for at in np.flatnonzero(met)
        ]
    return wrong


def source_checks(release: BucketRelease, source: Records, params: Bucketize) -> list[Check]:
    """Return the checks that compare the release with the source, which lies in relation ``records``."""
    roles, sigma = release.roles, params.fake_values
    fewer, suppressing = params.excess != "refuse", params.excess == "suppress"
    wanted = compute_thresholds(release.db, source, params.threshold)
    checks: dict[str, Any] = {"thresholds are those of the specification": partial(_differing_thresholds, wanted)}
    bounds = stated_bounds(release.facts)
    if bounds or params.is_bounding:
        due = compute_bounds(release.db, source, params)
        checks["bounds on groups are those of the specification"] = lambda _: _differing_bounds(bounds, due)
    if not sigma:
        checks["sensitive values are the source's"] = release.compare_values(column("count"), fewer=fewer)
    else:
        records = temp_table("records")
        source.sort_records()
        if not suppressing:
            published = release.view("st"), column("count")
            missing = compare_rows(roles.sa_columns(), published, (records, ONE), fewer=True)
            checks["every sensitive value of the source is listed"] = missing
        checks["no more values of a bucket are fake than stated"] = release.fill_query(
            "verify/unexplained",
            records=records,
            sa_real=roles.sa_columns("r"),
            fakes=exp.Literal.number(release.facts.fake_values),
            same_qi="q r",
            same_value="st k",
        )
        checks["values are real as often as in the source"] = partial(_real_differs_from_source, source, params)
    checks["quasi-identifiers are the source's"] = release.compare_people(source, "qit", fewer=fewer)
    return release.list_checks(checks)


def _differing_thresholds(wanted: Sequence[Fraction], release: BucketRelease) -> list[str]:
    """Return the values whose published threshold differs, one line each.

    Args:
        wanted: The threshold that each value should have, computed from a specification or from the stated rule (m,).
        release: The release.
    """
    rows = release.list_values("numerator", "denominator")
    stated = [Fraction(int(top), int(bottom)) if top and bottom else None for _, top, bottom in rows]
    if len(stated) != len(wanted):
        return [f"{len(stated)} thresholds, the source has {len(wanted)} values"]
    pairs = zip(rows, stated, wanted, strict=True)
    return [f"value {name}: stated {was}, asked for {due}" for (name, *_), was, due in pairs if was != due]


def _differ_from_rule(release: BucketRelease) -> list[str]:
    """Recompute every threshold from the rule in the manifest, and return the values with another one."""
    rule, listed = release.params.threshold, _count_listed(release)
    if rule.query is not None:
        return []  # a query gave the thresholds, so there is no rule
    if not listed or min(records for _, records in listed) <= 0:
        return ["a value has no records"]
    try:
        wanted = rule.thresholds_for([name for name, _ in listed], [records for _, records in listed])
    except ValueError as error:
        return [str(error)]
    return _differing_thresholds(wanted, release)


def _unallowed_certain(release: BucketRelease) -> list[str]:
    """Return the values that are certain without permission: their threshold was not written as 1."""
    rows = release.list_values("numerator", "denominator")
    shares = [Fraction(int(top or 0), int(bottom or 1)) for _, top, bottom in rows]
    excused = allowed_values(release.params, [name for name, *_ in rows], shares)
    if excused is None:
        return []
    certain = list_sensitive(release).count_certain(excused)
    return [f"{name}: certain for {records} records" for name, records in certain.items()]


def _wrong_claims(release: BucketRelease) -> list[str]:
    """Return what the manifest states wrongly about records, loss, lower bound, bucket sizes and parameters."""
    manifest, facts, params = release.manifest, release.facts, release.params
    setting = dict(facts.sizes)
    records = sum(size * buckets for size, buckets in setting.items())
    loss = sum(buckets * (size - 1) ** 2 for size, buckets in setting.items())
    bound = facts.lower_bound
    claims = {
        f"published {manifest.published}, but the buckets hold {records}": manifest.published == records,
        f"records {manifest.records} = published + suppressed": manifest.records
        == records + (manifest.suppressed or 0),
        f"loss {facts.loss}, but the setting has {loss}": facts.loss == loss,
        f"mse {facts.mse}": facts.mse == loss / max(1, records - 1),
        f"lower bound {bound} exceeds the loss {loss}": bound <= loss,
        f"gap {facts.gap}": facts.gap == (0.0 if loss == bound else float(Fraction(loss - bound, max(1, bound)))),
        f"bucket sizes {min(setting)}..{max(setting)} lie outside what was asked": (
            params.min_bucket_size <= min(setting)
            and max(setting) <= max(params.max_bucket_size, params.min_bucket_size)
        ),
        f"setting {params.setting} is another one": params.setting is None or setting == params.stated_buckets,
        f"layout {facts.layout}": facts.layout == params.effective_layout,
        f"left out {facts.left_out}": facts.left_out <= (manifest.suppressed or 0),
        f"algorithm {manifest.algorithm}": manifest.algorithm == params.algorithm,
    }
    return [wrong for wrong, holds in claims.items() if not holds]
