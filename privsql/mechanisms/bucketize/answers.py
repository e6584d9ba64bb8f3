"""Answer counts from a bucketized release: by its linear estimator, by a fitted model, or by the papers' formula.

All three read which values the buckets of the matching records list. The papers' formula multiplies matching rows by
matching values in each bucket. The linear estimator adds up published weights of listed values, and assumes no model.
The model gives the probability of each sensitive value, given a record's quasi-identifiers and its bucket.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.answers import answer
from privsql.answers.answer import DRAWN_COLUMNS, DRAWS, LINEAR, AttachedModel
from privsql.answers.bucket_model import find_obstacle, find_twins, predict_seconds
from privsql.answers.channel import LARGE, Channel, LinearEstimator
from privsql.answers.estimate import (
    ConfidenceLevel,
    CountBounds,
    RecordSets,
    ReleaseQuestion,
    count_groups,
    estimate_rows,
    project_within,
    read_sets,
)
from privsql.answers.learned_prior import code_column, comparable_columns
from privsql.answers.sql.question import (
    CountQuery,
    Explained,
    group_terms,
    observation_holes,
    select_terms,
    side_holes,
)
from privsql.engine.files import label_value
from privsql.engine.sqlfiles import (
    Holes,
    Roles,
    alias_as,
    all_of,
    all_rows,
    column,
    fill,
    qualify_tables,
    same_columns,
    table,
    temp_table,
)
from privsql.errors import EngineError, GuaranteeError, InfeasibleError, UsageError
from privsql.mechanisms.bucketize.estimator import FakeValueChannel, make_channel, make_linear_estimator
from privsql.mechanisms.bucketize.layout import BucketRuns, runs_from_entries
from privsql.mechanisms.bucketize.parameters import BucketFacts, BucketizeFacts
from privsql.mechanisms.bucketize.tables import size_of_bucket
from privsql.model.arrays import ReleaseArrays, as_doubles
from privsql.model.estimates import BASELINE, MODEL, Estimate, exact_estimate, same_nan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from privsql.answers.channel import Floats
    from privsql.engine.database import Relations

# An open release ------------------------------------------------------------------------------------------------------

MOST_LISTED = 2**25  # up to so many records, lists of buckets are kept in memory
RECORDS_AT_ONCE = 2**14  # the lists of so many records fit into a processor's cache


class BucketizedAnswers(answer.Answers):
    """An open bucketized release that answers questions for counts, sums and means."""

    certain = frozenset({BASELINE})
    records = "qit"
    measures = frozenset()
    counts_values = True
    modelled = True

    @property
    def channel(self) -> Channel:
        return self._fake_value_channel.channel

    @cached_property
    def _value_count(self) -> int:
        """Return the number of sensitive values.

        It is read from the table of values. To read the channel (how often values share buckets) can take seconds.
        """
        return int(self._db.rows(fill("core/size", {"table": table("privsql_values")}))[0][0])

    @cached_property
    def _facts(self) -> BucketizeFacts:
        return BucketizeFacts.model_validate(self._manifest.facts)

    @cached_property
    def _fake_value_channel(self) -> FakeValueChannel:
        return make_channel(self._db.arrow(all_rows(table("privsql_channel"))), self._facts)

    @cached_property
    def _bucket_lists(self) -> BucketRuns | None:
        """Return the sensitive values that each bucket lists, as arrays; None if the release is too large for memory.

        The linear estimator adds them up over the matching records, which is faster from memory than in SQL.
        """
        if self._manifest.published_records > MOST_LISTED:
            return None
        return read_lists(self._db, self._roles, self._facts)

    @cached_property
    def _expected_records(self) -> pa.Table:
        """Return how many of a bucket's records are expected to have each listed value: (bid, code, expected).

        If buckets list fake values, the papers' formula takes these numbers in place of how often a value is listed.
        The numbers of a bucket sum to its size, and each is at most 1. So an estimate never leaves its bounds, and the
        estimates of groups add up to that of all groups.
        """
        law, lists, moved = self._fake_value_channel, read_lists(self._db, self._roles, self._facts), []
        for one in lists.classes:
            near, total = one.size * law.scale[one.size] * law.ratio[one.codes], np.full(len(one.codes), one.size * 1.0)
            moved.append(project_within(near, total, np.ones_like(near), np.ones(near.shape[1])).ravel())
        bids, codes = (part.astype(np.int32) for part in lists.listed_pairs)
        return pa.table({"bid": bids, "code": codes, "expected": np.concatenate(moved)})

    @cached_property
    def _linear_estimator(self) -> LinearEstimator | None:
        """Return the weights that turn what buckets list into estimated counts of values; None for too many values.

        They are computed here, because not every release publishes them.
        """
        if self._value_count > LARGE:
            return None
        return make_linear_estimator(self.channel.moment, self._facts.real)

    @property
    def estimators(self) -> tuple[str, ...]:
        model = (MODEL,) if self.model is not None else ()
        linear = (LINEAR,) if self._value_count <= LARGE else ()
        return *model, *linear, BASELINE

    def make_statement(self, query: CountQuery, estimator: str) -> Explained:
        if estimator == MODEL and self.model is not None:
            if query.measure.kind != "count":
                raise UsageError(f"{query.measure.kind.upper()} is no count, which {MODEL} estimates")
            return partial(model_statement, query, self._roles, self.model), MODEL_FORMULA
        if estimator == LINEAR:
            return partial(channel_statement, query, self._roles, self._facts), LINEAR_FORMULA  # to show
        if query.measure.kind != "count":
            raise UsageError(f"{query.measure.kind.upper()} needs another estimator: {', '.join(self.estimators[:-1])}")
        return baseline_statement(query, self._roles, self._facts), BASELINE_FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        if estimator == MODEL and self.model is not None:
            bounds, linear = self._bound_counts(query), self.answer(query, LINEAR, confidence)
            return estimate_by_model(self._db, query, self._roles, self.model, bounds, linear, confidence)
        if estimator != LINEAR or self._linear_estimator is None:
            return self._bound_counts(query)
        law, code = self._fake_value_channel, self._roles.by_sa.column_name("code")
        question = ReleaseQuestion(
            self._db, query, table("qit"), law.channel, most=law.most, linear=self._linear_estimator, code=code
        )
        if self._bucket_lists is not None and query.measure.amount is None:
            return estimate_rows(question, sum_lists(question, self._roles, law, self._bucket_lists), confidence)
        return estimate_rows(question, observe_sets(question, self._roles, self._facts, law), confidence)

    def require_numbers(self, query: CountQuery, estimator: str) -> None:
        """Raise ``UsageError`` for a sum or mean of a sensitive number that the estimator can't estimate.

        The model estimates counts only. Sums and means by the model are asked of the completed tables: copies of the
        release in which each record has one sensitive value, drawn by the model.
        """
        super().require_numbers(query, estimator)
        if estimator == MODEL:
            raise UsageError(f"{query.measure.kind.upper()} of a sensitive number is asked of the completed tables")

    def read_arrays(self, database: str) -> ReleaseArrays:
        """Return the release as arrays, to which a model of values given quasi-identifiers can be fitted.

        Raises:
            InfeasibleError: No such model can be fitted; the message says why.
        """
        obstacle, arrays = self._find_obstacle(), None
        if obstacle is None:
            arrays = read_release_arrays(self._db, self._roles, database)
            obstacle = find_obstacle(len(arrays.bucket), len(arrays.values)) or find_twins(arrays)
        if obstacle or arrays is None:
            raise InfeasibleError(f"no model is fitted to {obstacle}; its answers are linear")
        return arrays

    def predict_fit(self) -> float | None:
        records = self._manifest.published_records
        if self.model is not None or self._find_obstacle() or find_obstacle(records, self._value_count):
            return None
        return predict_seconds(records, len(self._roles.quasi_identifiers), self._value_count, self._facts.sizes)

    def explain_improvement(self, estimator: str) -> tuple[str, ...]:
        """Return a sentence that advises to run ``privsql fit`` for more precise answers, and says how long that takes.

        The tuple is empty if no model can be fitted, or if the answer is not from the linear estimator.
        """
        seconds = self.predict_fit() if estimator == LINEAR else None
        if seconds is None:
            return ()
        return (f"'privsql fit' makes answers of this release more precise; it takes about {max(seconds, 1):,.0f} s",)

    def _find_obstacle(self) -> str | None:
        """Return why no model of values given quasi-identifiers can be fitted, as a phrase for messages.

        Only the manifest is read; the result is None if it gives no reason.
        """
        if self._facts.fake_values:
            return "a release with fake values"
        if len(self._roles.sensitive) > 1:
            return "a compound attribute"
        return "a release with groups of values" if self._manifest.parameters.get("groups") else None

    def _bound_counts(self, query: CountQuery) -> list[Estimate]:
        """Return counts by the papers' formula, each with a lowest and a highest count that are certain.

        The formula multiplies the matching rows of a bucket by its matching values, divides by its size, and adds up
        the buckets. A group has a row if it can have records with the values that are asked for.
        """
        if self._facts.fake_values:
            self._db.register_arrow("expected", self._expected_records)
        groups: dict[tuple[Any, ...], tuple[Fraction, int, int]] = {}
        rows = self._db.rows(baseline_statement(query, self._roles, self._facts))
        for size, *group, pairs, certain, possible in rows:
            key = tuple(map(same_nan, group))
            estimate, low, high = groups.get(key, (Fraction(0), 0, 0))
            groups[key] = estimate + Fraction(pairs) / int(size), low + int(certain), high + int(possible)
        if not groups and not query.groups:
            return [exact_estimate((), 0.0)]
        return [
            Estimate(group, min(max(float(estimate), low), high), 0.0 if low == high else None, float(low), float(high))
            for group, (estimate, low, high) in groups.items()  # rounding may move the estimate past a bound
        ]


# Lists of buckets -----------------------------------------------------------------------------------------------------


def list_values(roles: Roles) -> exp.Subquery:
    """Return the query for the sensitive values of an open release and their codes: (code, s0..).

    Columns s0, s1, .. are the sensitive columns.
    """
    return exp.select(*roles.by_sa.select_columns("code"), *roles.sa_in()).from_(table("privsql_values")).subquery()


def query_lists(roles: Roles) -> exp.Query:
    """Return the query for how often (n) each bucket lists each sensitive value, given by its code: (bid, code, n)."""
    holes: Holes = {
        "st": exp.select(*roles.by_sa.select_columns("bid", "count"), *roles.sa_in()).from_(table("st")).subquery(),
        "values": list_values(roles),
        "same_value": same_columns("st", "v", roles.sa_keys),
    }
    return fill("verify/bucket_values", holes)


def read_lists(db: Relations, roles: Roles, facts: BucketFacts) -> BucketRuns:
    """Return the sensitive values that the buckets of an open release list, as arrays.

    Raises:
        EngineError: ST does not fit the stated bucket sizes.
    """
    rows, buckets = db.arrow(query_lists(roles)), sum(number for _, number in facts.sizes)
    bids, codes, times = (rows[name].fill_null(-1).to_numpy() for name in ("bid", "code", "n"))
    try:
        if not 0 < buckets <= len(bids) or min(bids.min(), codes.min()) < 0 or bids.max() >= buckets or times.min() < 1:
            raise GuaranteeError("no such buckets")
        values, (bids, codes) = int(codes.max()) + 1, (np.repeat(one, times) for one in (bids, codes))
        return runs_from_entries(bids, codes, values, facts.sizes, facts.fake_values)
    except GuaranteeError as error:
        raise EngineError("the release is damaged: its buckets do not list as many values as is stated") from error


def read_release_arrays(db: Relations, roles: Roles, database: str) -> ReleaseArrays:
    """Return QIT and ST of the release in ``database`` as arrays, to which a model can be fitted.

    Records keep the order in which they are stored.

    Raises:
        EngineError: QIT and ST do not have the same buckets.
    """
    columns, bid = comparable_columns(roles), roles.by_qi.as_column("bid")
    placed = fill("query/placed", {"qit": table("qit"), "bid": bid, "columns": columns, "filter": exp.true()})
    labels = exp.select(*(exp.cast(item, "VARCHAR") for item in roles.sa_columns()))
    labels = labels.from_(list_values(roles)).order_by("code")
    lists = query_lists(roles).order_by("bid", "code")
    rows, listed = (db.arrow(qualify_tables(query, database)) for query in (placed, lists))
    bids, bucket = np.unique(rows["bid"].to_numpy(), return_inverse=True)
    listed_bids, listed_bucket = np.unique(listed["bid"].to_numpy(), return_inverse=True)
    if not np.array_equal(bids, listed_bids) or (np.diff(bucket) < 0).any():
        raise EngineError("the release is damaged: QIT and ST do not have the same buckets")
    texts = db.rows(qualify_tables(labels, database))
    named = zip(roles.quasi_identifiers, roles.qi_keys, strict=True)
    return ReleaseArrays(
        {field.name: code_column(rows[key], field) for field, key in named},
        bucket,
        listed_bucket,
        listed["code"].to_numpy().astype(np.int64),
        listed["n"].to_numpy().astype(np.int64),
        [label_value(text) for text in texts],
    )


# Baseline -------------------------------------------------------------------------------------------------------------
# The papers' formula is est = sum_g c_QIT(g, cond) * c_ST(g, X) / |g|: matching rows times matching values of bucket g,
# over its size. It treats the condition and the sensitive value as independent within a bucket, so it is biased towards
# independence and has no honest standard error. Frechet's bounds are certain: if n of the |g| rows match, and c of the
# listed values, then at least n + c - |g| and at most min(n, c) records match both.

EXPECTED = "privsql_expected"
BASELINE_FORMULA = (
    "estimate = sum over buckets g of c_QIT(g, condition) * c_ST(g, values) / |g|; low and high are certain"
)


def baseline_statement(query: CountQuery, roles: Roles, facts: BucketFacts) -> exp.Query:
    """Return the SQL that counts by the papers' formula.

    In each bucket, matching rows times matching values are divided by the bucket's size. The rows of the result also
    have the certain bounds.
    """
    fakes = facts.fake_values
    holes: Holes = {
        "qit": query.join_lookups(table("qit")),
        "st": _with_expected(roles) if fakes else table("st"),
        "expected": column(EXPECTED) if fakes else roles.by_sa.as_column("count"),
        "qit_bid": roles.by_qi.as_column("bid"),
        "st_bid": roles.by_sa.as_column("bid"),
        "count": roles.by_sa.as_column("count"),
        "size": size_of_bucket(facts.sizes, exp.column("bid", table="s")),
        "fakes": exp.Literal.number(fakes),
        "qi_keys": [expression for _, expression in group_terms(query, "qi")],
        "sa_keys": [expression for _, expression in group_terms(query, "sa")],
    }
    return fill("query/pairs", holes | side_holes(query))


def _with_expected(roles: Roles) -> exp.Subquery:
    """Return ST with one more column: how many records of the bucket are expected to have the value.

    The numbers come from relation ``expected``, which exists only if buckets list fake values.
    """
    sa_names, names = roles.by_sa, [field.name for field in roles.sensitive]
    listed = exp.Column(this=exp.Star(), table=exp.to_identifier("l"))
    joined = exp.select(listed, alias_as(column("expected", "e"), EXPECTED)).from_(table("st").as_("l"))
    joined = joined.join(table("privsql_values").as_("v"), on=same_columns("l", "v", names))
    met = exp.and_(
        sa_names.as_column("bid", "l").eq(column("bid", "e")), sa_names.as_column("code", "v").eq(column("code", "e"))
    )
    return joined.join(temp_table("expected").as_("e"), on=met).subquery()


# Sums over records ----------------------------------------------------------------------------------------------------
# The linear estimator reads e = sum over the matching records of count(g, .)/|g|, where g is the record's bucket.

LINEAR_FORMULA = (
    "estimate = sum over the values v asked for of (e W)_v, e = sum over the matching records of count(g, .)/|g|, W in "
    "privsql_estimator; about the SUM(weight) of the weighted view"
)


def channel_statement(query: CountQuery, roles: Roles, facts: BucketFacts) -> exp.Query:
    """Return the SQL that adds up, over the matching records of each group, how often their buckets list each value.

    The linear estimator turns these sums into counts.
    """
    amount, sa_names = query.measure.amount, roles.by_sa
    listed = exp.Sum(this=exp.column("amounts", "q") * column("count", "s"))
    holes: Holes = observation_holes(query) | {
        "qit": query.join_lookups(table("qit")),
        "bid": roles.by_qi.as_column("bid"),
        "st": exp.select(*sa_names.select_columns("bid", "count"), *roles.sa_in()).from_(table("st")).subquery(),
        "values": list_values(roles),
        "amounts": [alias_as(listed, "amounts")] if amount else [],
        "amount": [exp.column("amounts", "sums")] if amount else [],
        "sa": roles.sa_columns("s"),
        "size": size_of_bucket(facts.sizes, exp.column("bid", table="s")),
        "same_value": same_columns("sums", "v", roles.sa_keys),
    }
    return fill("query/observed", holes)


def observe_sets(question: ReleaseQuestion, roles: Roles, facts: BucketFacts, law: FakeValueChannel) -> RecordSets:
    """Add up in SQL, for each set of records that a question selects, what their buckets list.

    The linear estimator turns these sums into counts. Each listed value of a bucket counts 1 over the number of values
    that the bucket lists, so a record adds 1 in all.

    Args:
        question: The question, put to an open release.
        roles: The columns by role.
        facts: The facts of the release.
        law: The channel of the release, which holds this weight of a listed value by bucket size (``scale``).
    """
    rows = question.db.arrow(channel_statement(question.query, roles, facts))
    by_size = np.zeros(max(law.scale) + 1)
    by_size[list(law.scale)] = list(law.scale.values())
    return read_sets(question, rows, by_size[rows["size"].to_numpy()])


def sum_lists(question: ReleaseQuestion, roles: Roles, law: FakeValueChannel, lists: BucketRuns) -> RecordSets:
    """Add up in memory, for each set of records that a question selects, what their buckets list.

    The linear estimator turns these sums into counts. Each listed value of a bucket counts 1 over the number of values
    that the bucket lists, so a record adds 1 in all. This is quicker than SQL (``observe_sets``), but serves no
    questions for sums or means.

    Args:
        question: The question, put to an open release.
        roles: The columns by role.
        law: The channel of the release, which holds this weight of a listed value by bucket size (``scale``).
        lists: The values that each bucket lists.
    """
    query = question.query
    holes: Holes = {
        "qit": query.join_lookups(table("qit")),
        "bid": roles.by_qi.as_column("bid"),
        "columns": select_terms(query, "qi"),
        "filter": all_of(query.filters["qi"]),
    }
    rows = question.db.arrow(fill("query/placed", holes))
    ranks, keys = number_sets(rows, [name for name, _ in group_terms(query, "qi")])
    bids = rows["bid"]
    bids = (bids.fill_null(-1) if bids.null_count else bids).to_numpy()
    buckets, times = sum(len(one.codes) for one in lists.classes), None
    if len(keys) * (buckets + 1) <= len(bids):  # count records of one set in one bucket together
        inside = np.where((bids >= 0) & (bids < buckets), bids, buckets)
        records = np.bincount(ranks * (buckets + 1) + inside)
        met = np.flatnonzero(records)
        (ranks, bids), times = np.divmod(met, buckets + 1), records[met]
    observed = np.zeros((len(keys), lists.values))
    for one in lists.classes:
        pairs, listed = np.zeros(observed.size), one.codes.shape[1]
        step = max(RECORDS_AT_ONCE, observed.size // listed)
        for start in range(0, len(bids), step):
            part = slice(start, start + step)
            bucket = bids[part] - int(one.first[0])
            (held,) = np.nonzero((bucket >= 0) & (bucket < len(one.codes)))
            if not len(held):
                continue
            places = np.take(one.codes, bucket[held], axis=0) + observed.shape[1] * ranks[part][held, None]
            weights = None if times is None else np.repeat(times[part][held], listed)
            pairs += np.bincount(places.ravel(), weights, observed.size)
        observed += law.scale[one.size] * pairs.reshape(observed.shape)
    return RecordSets(keys, observed, np.zeros_like(observed))


def number_sets(rows: pa.Table, names: list[str]) -> tuple[NDArray[np.int64], list[tuple[Any, ...]]]:
    """Number the groups of rows that agree in all columns ``names``.

    Returns:
        (the number of each row's group (rows,), the values of each group).
    """
    ranks = np.zeros(rows.num_rows, dtype=np.int64)
    keys: list[tuple[Any, ...]] = [()] if rows.num_rows else []
    for name in names:
        indices, value_list = _encode_values(rows[name].combine_chunks())
        ranks = ranks * len(value_list) + indices if len(keys) > 1 else indices
        if len(keys) * len(value_list) > len(ranks):  # sorting them takes less memory than a table of all pairs
            met, ranks = np.unique(ranks, return_inverse=True)
            place = np.arange(len(met))
        else:
            is_met = np.bincount(ranks) > 0
            met, place = np.flatnonzero(is_met), np.cumsum(is_met) - 1
        number: dict[tuple[Any, ...], int] = {}  # 0.0 and -0.0 are one value
        pairs = (divmod(pair, len(value_list)) for pair in met.tolist())
        merged = [number.setdefault((*keys[key], value_list[value]), len(number)) for key, value in pairs]
        ranks, keys = np.array(merged, dtype=np.int64)[place][ranks], list(number)
    return ranks, keys


def _encode_values(values: pa.Array) -> tuple[NDArray[np.int64], list[Any]]:
    """Return each value as an index into a list, and this list.

    The list may hold values that do not occur: integers close to each other are indexed by their whole range.
    """
    if pa.types.is_signed_integer(values.type) and len(values) and not values.null_count:
        numbers = values.to_numpy()
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < len(numbers):  # several times as fast as hashing them
            return numbers.astype(np.int64) - low, list(range(low, high + 1))
    values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    encoded = values.dictionary_encode(null_encoding="encode")
    listed = [same_nan(value) for value in encoded.dictionary.to_pylist()]
    return encoded.indices.to_numpy().astype(np.int64), listed


# Model ----------------------------------------------------------------------------------------------------------------
# The model gives q_rv, the belief that record r has value v. An answer sums it over the records and values selected.

MODEL_FORMULA = (
    "estimate = sum over the matching records r and values v of q_rv, the probability by the release's model that r "
    "has v, given what its bucket lists; combined with the linear estimate where that is nearly as precise"
)
# Only counts are answered here; other questions are asked of the completed tables (``answers.completed``). Each
# completed table has its own draw of the model's parameters and of the values within buckets. The variance of a count
# between tables is the uncertainty that the release leaves, by the model. It can be 0 by chance, if no table has a rare
# value. So a count has at least the variance of half a record, unless beliefs are more certain than that.
#
# The linear estimator assumes no model. For many records it may be as precise. So the model's count m and the linear
# count l, with standard errors s and t of correlation rho, are combined with the least variance:
#
#     w m + (1 - w) l,   w = (t^2 - rho s t)/(s^2 + t^2 - 2 rho s t) from 0 to 1.
#
# Both read the same lists, so they are correlated: rho was 0.4 to 0.7 on 20 releases of real and made tables.

LEAST_VARIANCE = 0.5
CORRELATION = 0.6
LEAST_APART = 1e-12  # prevents division by 0


def model_statement(query: CountQuery, roles: Roles, model: AttachedModel) -> exp.Query:
    """Return the SQL that counts by a fitted model of values given quasi-identifiers.

    It adds up the probabilities that the matching records have the values asked for. It also counts the same records in
    each of the model's random draws of all sensitive values, for the standard error.
    """
    holes: Holes = {
        "records": query.join_lookups(temp_table(model.records)),
        "record": column(model.record),
        "values": table("privsql_values"),
        "code": roles.by_sa.as_column("code"),
        "weights": model.weights,
        "completed": model.completed,
    }
    return fill("duckdb/modelled", holes | side_holes(query))


def estimate_by_model(
    db: Relations,
    query: CountQuery,
    roles: Roles,
    model: AttachedModel,
    bounds: list[Estimate],
    linear: list[Estimate],
    confidence: float,
) -> list[Estimate]:
    """Return the count of each group by a fitted model of values given quasi-identifiers, and its interval.

    It is averaged with the linear estimate of the same group, which assumes no model. The linear one counts more where
    it is nearly as precise. The result is kept within bounds.

    Args:
        db: The engine in which the release is open.
        query: The question.
        roles: The columns by role.
        model: The fitted model of values given quasi-identifiers, whose tables are attached.
        bounds: For each group a count with bounds that are certain.
        linear: The counts by the linear estimator.
        confidence: The confidence of the intervals, such as 0.95.
    """
    if not bounds:
        return []
    groups, names = [one.group for one in bounds], [f"g_{i}" for i in range(len(query.groups))]
    rows = db.arrow(model_statement(query, roles, model))
    keys = rows.select(names).to_pylist() if names else [{}] * rows.num_rows
    rank = {tuple(same_nan(key[name]) for name in names): at for at, key in enumerate(keys)}
    order = np.array([rank.get(group, -1) for group in groups], dtype=np.intp)  # -1: the 0 that is appended below
    mean, within, *drawn = (np.append(as_doubles(rows[one], 0), 0.0)[order] for one in ("n", "nn", *DRAWN_COLUMNS))
    between = (1 + 1 / DRAWS) * np.var(drawn, axis=0, ddof=1)
    variance = np.maximum(between, np.minimum(within, LEAST_VARIANCE))
    least = np.array([[float(one.low or 0)] for one in bounds])
    most = np.array([[float(one.high or 0)] for one in bounds])
    mean, variance = combine_counts(groups, mean, variance, linear)
    counts = CountBounds(mean[:, None], variance[:, None], least, most)
    return count_groups(groups, counts, ConfidenceLevel(confidence, DRAWS - 1))


def combine_counts(
    groups: list[tuple[Any, ...]], mean: Floats, variance: Floats, linear: list[Estimate]
) -> tuple[Floats, Floats]:
    """Return weighted means of two counts of each group: by a fitted model, and by the linear estimator.

    The weights give the least variance. A group whose linear count has no standard error keeps the model's count.

    Args:
        groups: The groups.
        mean: The model's count of each group (groups,).
        variance: The variance of the model's count (groups,).
        linear: The counts by the linear estimator, in any order.

    Returns:
        (the combined counts, their variances) (groups,).
    """
    known = {tuple(map(same_nan, row.group)): row for row in linear if row.std_error}
    rows = [known.get(group) for group in groups]
    at = np.array([rank for rank, row in enumerate(rows) if row is not None], dtype=np.intp)
    if not len(at):
        return mean, variance
    count, error = np.array([(float(row.estimate or 0), row.std_error) for row in rows if row is not None]).T
    mean, variance = mean.copy(), variance.copy()
    shared = CORRELATION * np.sqrt(variance[at]) * error
    apart = np.maximum(variance[at] + error**2 - 2 * shared, LEAST_APART)
    weight = np.clip((error**2 - shared) / apart, 0, 1)
    mean[at] = weight * mean[at] + (1 - weight) * count
    variance[at] = weight**2 * variance[at] + (1 - weight) ** 2 * error**2 + 2 * weight * (1 - weight) * shared
    return mean, variance
