"""Answers from a release of views: any condition on the measured items, with exact errors or honest bounds."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from privsql.answers import parse_sets
from privsql.engine.sqlfiles import every, fill, table
from privsql.errors import UsageError
from privsql.mechanisms import private
from privsql.mechanisms.private import whole
from privsql.mechanisms.setvalued.views import bounds, conditions, patterns
from privsql.mechanisms.setvalued.views.choosing import beyond
from privsql.mechanisms.setvalued.views.release import read
from privsql.model.estimate import Estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from sqlglot import exp

    from privsql.answers.asked import Statement
    from privsql.answers.question import CountQuery
    from privsql.answers.sources import Lookups
    from privsql.mechanisms.noisytables.measured import Reals
    from privsql.mechanisms.setvalued.views.conditions import Condition
    from privsql.mechanisms.setvalued.views.release import Published

    Flags = NDArray[np.bool_]

BASELINE = (
    "estimate = sum of the least-squares counts of the patterns of items that meet the condition, made from all "
    "published tables; without bias and with its exact error where these tell it, else with bounds"
)
FORMULA = (
    "estimate = the same sum, its parities taken between those of least squares and those of the synthetic records, by "
    "how much is noise, and not further off than noise explains; the interval is that of least squares"
)
MOST_ITEMS = 22  # of a question: each of their patterns is looked at
TOLD = 0.95  # confidence at which an item set that is listed occurs at all


class Answers(private.Answers):
    """An open release that answers count queries over items; it is read and fitted once."""

    records = values = "privsql_sets"
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    def read(self, sql: str, lookups: Lookups) -> Statement:  # noqa: ARG002 (items join nothing)
        """A count query over items."""
        return parse_sets.read(sql, self._roles, self._manifest.name)

    @cached_property
    def published(self) -> Published:
        """The release's tables as arrays."""
        found = read(self._db, self._database)
        with whole():
            _ = found.choice, found.measured, found.patterns
        return found

    @property
    def labels(self) -> tuple[str, ...]:
        """Text of the items, in the order of the universe."""
        return self.published.labels

    @cached_property
    def _places(self) -> dict[int, int]:
        return {code: place for place, code in enumerate(self.published.choice.codes.tolist())}

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:  # noqa: ARG002
        """The SQL that reads the release for an answer, and the formula in words."""
        self.known(estimator)
        return fill("setvalued/counted", {"marginals": table("privsql_marginals")}), self.formulas[estimator]

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer: one row; ``UsageError`` for what was not measured."""
        self.known(estimator)
        whole = every([*query.filters["qi"], *query.filters["sa"]])
        condition = conditions.read(self._db, whole, table("privsql_universe"))
        if not condition.counts:
            codes = self._ordered(condition.codes)
            return [self._estimate(codes, condition.over(self._db, codes), estimator, confidence)]
        return [self._estimate(self._all(), self._by_length(condition), estimator, confidence)]

    def _by_length(self, condition: Condition) -> Flags:
        codes = self._all()
        return condition.over(self._db, codes, patterns.sizes(len(codes)))

    def _all(self) -> list[int]:
        """All items, where all were measured."""
        codes: list[int] = self.published.choice.codes.tolist()
        universe = self.published.universe
        if len(codes) < universe:
            raise UsageError(
                f"len({self._roles.sensitive[0].name}) can't be answered: {len(codes)} of {universe:,} items were "
                "measured, and nothing is known of how many others a record has"
            )
        return codes

    def _ordered(self, codes: Sequence[int]) -> list[int]:
        """The measured ones by their places, then the others."""
        return sorted(codes, key=lambda code: (self._places.get(code, len(self._places)), code))

    def containing(self, codes: Sequence[int], estimator: str, confidence: float) -> Estimate:
        """The number of records that contain all of some items.

        Of those that were not measured one is enough: no more records have all of them than have that one.
        """
        ordered = self._ordered(codes)
        asked = ordered[: sum(code in self._places for code in ordered) + 1]
        if len(asked) > MOST_ITEMS:
            raise UsageError(f"a question of more than {MOST_ITEMS - 1} items that were measured is not supported")
        meets = np.zeros(1 << len(asked), dtype=bool)
        meets[-1] = True
        return self._estimate(asked, meets, estimator, confidence)

    def _estimate(self, codes: Sequence[int], meets: Flags, estimator: str, confidence: float) -> Estimate:
        """Of the records whose patterns of ``codes``, the measured ones first, meet a condition (2^k,)."""
        held, squares = self.published, self.published.squares
        chosen = [self._places[code] for code in codes if code in self._places]
        others, doubt = len(codes) - len(chosen), 1 - confidence
        whole = meets.reshape(1 << len(chosen), 1 << others).astype(np.float64)
        spectrum, part = (squares.value, None) if estimator == "baseline" else held.spectrum
        found = bounds.answer(spectrum, squares.items, chosen, whole[:, 0])
        exact = bounds.direct(squares, chosen, whole[:, 0], doubt / 2) if not others else None
        if exact is not None:
            error, low, high = exact
            if part is not None:
                own = bounds.answer(squares.value, squares.items, chosen, whole[:, 0])
                far, error = bounds.leaning(squares, part, chosen, whole[:, 0], found - own)
                found = own + far
        else:
            error, (low, high) = None, self._bounds(chosen, whole, doubt)
            found = min(max(found, low), high)
        found = found if estimator == "baseline" else max(found, 0.0)
        return Estimate((), found, error, min(low, found), max(high, found, 0.0))

    def _bounds(self, chosen: Sequence[int], whole: Reals, doubt: float) -> tuple[float, float]:
        """Bounds of what the tables do not tell, or what is asked of items that were not measured.

        A record without any of these meets the condition as ``whole[:, 0]`` has it, and at most ``outside`` records
        have one of them.
        """
        squares, others = self.published.squares, int(whole.shape[1]).bit_length() - 1
        if not others:
            return bounds.between(squares, chosen, whole[:, 0], whole[:, 0], doubt)
        third = doubt / 3
        low, high = bounds.between(squares, chosen, whole.min(axis=1), whole.max(axis=1), third)
        least, most = bounds.between(squares, chosen, whole[:, 0], whole[:, 0], third)
        outside = others * self._unmeasured(third)
        low, high = max(low, least - outside), min(high, most + outside)
        return low, max(low, high)

    def _unmeasured(self, doubt: float) -> float:
        """At most so many records have any one item that was not measured, but for a chance of ``doubt``."""
        choice, squares = self.published.choice, self.published.squares
        last = choice.budgets[-1]
        if last is None:
            return np.inf
        own = bounds.direct(squares, [len(choice.codes) - 1], np.array([0.0, 1.0]), doubt / 2)
        return np.inf if own is None else own[2] + beyond(self.published.universe, last, doubt / 2)

    # Frequent item sets ---

    def top(self, number: int, estimator: str) -> list[tuple[tuple[int, ...], float]]:
        """The item sets with most records: their codes, ascending, and estimates.

        Only sets of which a table tells the number of records, and of which it is above 0 at 95 % confidence.
        """
        self.known(estimator)
        squares, codes = self.published.squares, self.published.choice.codes
        counted, variance = squares.containing()
        shown, spectrum = counted, self.published.spectrum[0]
        if estimator != "baseline":
            leaning = patterns.containing(patterns.transformed(spectrum) / len(spectrum))
            shown = counted + bounds.limited(leaning - counted, np.sqrt(variance))
        occurs = counted > np.sqrt(variance) * bounds.normal(TOLD)
        occurs[0] = False
        listed = np.flatnonzero(occurs & (shown > 0))
        order = np.lexsort((listed, patterns.sizes(squares.items)[listed], -shown[listed]))[:number]
        return [
            (tuple(sorted(int(codes[place]) for place in patterns.places(one, squares.items))), float(shown[one]))
            for one in listed[order].tolist()
        ]

    def frequent(self, top: int, estimator: str) -> list[tuple[list[str], float]]:
        """The most frequent item sets, each with its estimated number of records."""
        return [([self.labels[code] for code in codes], number) for codes, number in self.top(top, estimator)]

    def synthetic(self) -> pa.Table:
        """Synthetic records that fit the release, (record, item) in order; the empty have none."""
        rows = self.published.rows["sets"]
        lists, weight = rows["items"].combine_chunks(), rows["weight"].to_numpy()
        repeated = lists.take(pa.array(np.repeat(np.arange(len(lists)), weight)))
        return pa.table({"record": repeated.value_parent_indices().cast(pa.int64()), "item": repeated.flatten()})
