"""The parameters of bucketization that a publisher sets, and the facts that its plans and releases state."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from math import sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel, StrictInt, model_validator

from privsql.exact import Linear, fraction_text
from privsql.figures import format_figure
from privsql.model.parameters import Facts, Parameters, Query, Rule, Share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Rules on groups of values --------------------------------------------------------------------------------------------


class Threshold(BaseModel):
    """The threshold of every sensitive value: a rule in the frequency f, exceptions by value, or a query.

    In TOML, a plain number or string is the rule. A table has ``default`` (the rule) and exceptions by value, or it has
    ``query``: a SELECT that yields the sensitive columns and, last, the threshold as a decimal, an integer or a text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    default: Rule | None = None
    values: dict[str, Share] = Field(default_factory=dict)
    query: Query | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, source: Any) -> Any:
        if not isinstance(source, dict):
            return {"default": source}
        if "values" in source and isinstance(source["values"], dict):
            return source
        return {
            **{key: source[key] for key in ("default", "query") if key in source},
            "values": {key: value for key, value in source.items() if key not in ("default", "query")},
        }

    @model_validator(mode="after")
    def _one_source(self) -> Threshold:
        if self.query is not None and (self.default is not None or self.values):
            raise ValueError("a threshold query can't be combined with default or exceptions")
        if self.default is not None and self.default.slope == 0 and not 0 < self.default.intercept <= 1:
            raise ValueError(f"threshold {self.default} lies outside (0, 1]; give a probability, 0.25, or '2*f + 0.02'")
        if self.query is None and self.default is None:
            raise ValueError("give a threshold, such as '8*f + 0.02', or a table with a default")
        return self

    @property
    def is_constant(self) -> bool:
        """Return whether all values have the same threshold, whatever their frequency is."""
        return self.query is None and not self.values and self.default is not None and self.default.slope == 0

    def thresholds_for(self, labels: Sequence[str], counts: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the threshold of every value, by the rule and its exceptions.

        Args:
            labels: The values as text.
            counts: The number of records of each value.

        Raises:
            ValueError: A threshold is not above 0, or an exception is for a value that does not exist.
        """
        rule = self.default or Linear(Fraction(0), Fraction(1))
        unknown = sorted(set(self.values) - set(labels))
        if unknown:
            raise ValueError(f"threshold for {unknown[0]!r}, which is not a value of the sensitive column")
        n = sum(counts)
        thresholds = []
        for label, count in zip(labels, counts, strict=True):
            value = self.values.get(label) or rule.threshold_at(Fraction(count, n))
            if value <= 0:
                raise ValueError(f"threshold {rule} is {float(value):g} for value {label}; it must be above 0")
            thresholds.append(value)
        return tuple(thresholds)


class Members(RootModel[tuple["Members | StrictInt | str", ...]]):
    """Sensitive values as texts or whole numbers; a list inside the list is a group inside the group."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _require_kinds(cls, source: Any) -> Any:
        if not isinstance(source, (list, tuple, cls)):
            raise ValueError(f"values must be a list, not {source!r}")
        for item in source if not isinstance(source, cls) else ():
            if isinstance(item, bool) or not isinstance(item, (str, int, list, tuple, cls)):
                raise ValueError(f"value {item}: write it as text, as SQL prints it")
        return source

    def as_texts(self) -> list[str]:
        """Return all values as text, those of inner lists included."""
        return [v for item in self.root for v in (item.as_texts() if isinstance(item, Members) else [str(item)])]

    def list_inner(self, name: str) -> Iterator[tuple[str, Members]]:
        """Yield (name, values) for the lists inside, at any depth.

        The first list in group ``g`` is named ``g.1``; the second list inside that is ``g.1.2``.
        """
        lists = (item for item in self.root if isinstance(item, Members))
        for number, item in enumerate(lists, 1):
            yield f"{name}.{number}", item
            yield from item.list_inner(f"{name}.{number}")


class ValueGroup(BaseModel):
    """Sensitive values with a common bound: their records are at most threshold * size of every bucket.

    ``column`` names the column of a compound sensitive attribute that has these values. Without it, values are
    combinations of all columns, written ``[flu, mild]``. A list inside the list of values is a group of its own, with
    the same rule applied to its own frequency.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    threshold: Rule
    values: Members
    column: str | None = None

    @model_validator(mode="after")
    def _of_values(self) -> ValueGroup:
        for _, names in self.list_sets(""):
            if not names:
                raise ValueError("a group holds at least one value")
        name, times = Counter(self.values.as_texts()).most_common(1)[0]
        if times > 1:
            raise ValueError(f"value {name!r} appears twice")
        if self.threshold.slope == 0 and not 0 < self.threshold.intercept <= 1:
            raise ValueError(f"threshold {self.threshold} lies outside (0, 1]")
        return self

    def list_sets(self, name: str) -> Iterator[tuple[str, list[str]]]:
        """Yield (name, values as text) of the group and of all groups inside it; ``name`` is the name of the group."""
        yield name, self.values.as_texts()
        yield from ((inner_name, members.as_texts()) for inner_name, members in self.values.list_inner(name))

    def threshold_at(self, records: int, total: int) -> Fraction:
        """Return the threshold of a set of values that ``records`` of ``total`` records have.

        Raises:
            ValueError: The threshold is not above 0.
        """
        value = self.threshold.threshold_at(Fraction(records, total))
        if value <= 0:
            raise ValueError(f"threshold {self.threshold} is {float(value):g}; it must be above 0")
        return value


# Parameters -----------------------------------------------------------------------------------------------------------


PAIR = re.compile(r"([\d,]+)\s*x\s*(\d+)")


def parse_setting(value: object) -> str:
    """Return a bucket setting, written as number of buckets x size, in its short form.

    Raises:
        ValueError: The text is no bucket setting.

    >>> parse_setting("1,200 x 4, 1 x 14")
    '1200x4, 1x14'
    """
    pairs = [(int(number.replace(",", "") or 0), int(size)) for number, size in PAIR.findall(str(value))]
    if not pairs or re.sub(r"[\s,]", "", PAIR.sub("", str(value))) or not all(min(pair) for pair in pairs):
        raise ValueError(f"{value!r} is not a bucket setting; write number x size, as in '9x4, 1x14'")
    if len({size for _, size in pairs}) < len(pairs):
        raise ValueError(f"{value!r} lists a size twice")
    return ", ".join(f"{number}x{size}" for number, size in pairs)


BucketSetting = Annotated[str, BeforeValidator(parse_setting)]
"""Numbers of buckets by size, as text."""
Layout = Literal["blocks", "round-robin", "largest-first", "lumps"]


class Bucketize(Parameters):
    """Bucketization: in every bucket, a sensitive value has at most its threshold's share of the records.

    ``algorithm``: all but ``informative`` minimise the loss (the sum of (size - 1)^2 over all buckets), exactly or
    nearly, as the papers do. ``informative`` suits thresholds that vary with the frequency f. Its buckets have
    nearly one size, as large as possible, and list a value as often as its threshold allows (layout ``lumps``). Answers
    are then more precise, and beliefs reach their thresholds for most records.

    ``excess`` says what happens if a value is too frequent for a constant threshold: ``refuse`` the request, or
    ``suppress`` some of its records, drawn at random. Whoever sees that a record is missing then learns its value. So
    ``suppress`` needs ``absence = "unobservable"``: the publisher states that attackers do not know who is in the
    table.

    ``components`` has a threshold, written as ``threshold`` is, for single columns of a compound sensitive attribute.
    ``groups`` has named sets of values with a threshold each. In every bucket, the records with one value of the
    column, or with any value of the group, are at most threshold * size.

    ``fake_values`` is the number of values listed in every bucket that no record of the bucket has. Each value then
    stands at most once in a bucket, and a listed value is real with probability size/(size + fakes), whichever value it
    is. This is impossible for a value with more than 1/(size + fakes) of the records. ``uneven_fakes`` says what
    happens then: ``refuse`` the request, or ``state`` exactly how certain each value is.

    ``exclude_negative`` takes only fakes that an attacker can't exclude for any record of the bucket. A value is
    excluded if the release shows it to be rare among records that agree with the record in a quasi-identifier.
    ``no_admissible_fake`` says what happens if there are too few. A listed value that can be excluded for some record
    of its bucket is then certainly real, for an attacker who knows how fakes were chosen.

    ``setting`` states the buckets themselves, in place of a search (algorithm ``setting``). A setting without room for
    all records is refused, and the message names the values with too little room.

    ``allow_certain`` permits values to be certain. Without it, a release in which all records of some bucket have one
    value is refused, unless that value's threshold was written as 1.

    ``max_learning`` limits what thresholds do not bound: what an attacker learns from the release as a whole. The
    strongest known learning attacker fits a model to the release. If its mean belief in its best guesses is higher, the
    release is refused. The figure follows from QIT and ST alone.
    """

    kind: Literal["bucketize"] = "bucketize"
    algorithm: Literal["anatomy", "one-size", "two-size", "multi-size", "optimal", "informative", "setting"] = Field(
        default="optimal", description="[default: informative for thresholds with f, else optimal]"
    )
    threshold: Threshold = Field(
        description="Highest allowed belief in a value: a constant, or linear in its frequency f: '8*f + 0.02'."
    )
    components: dict[str, Threshold] = Field(
        default_factory=dict, description="Thresholds of single columns of a compound sensitive attribute."
    )
    groups: dict[str, ValueGroup] = Field(
        default_factory=dict, description="Named groups of values with a common threshold."
    )
    min_bucket_size: int = Field(default=2, ge=1, description="Smallest bucket size.")
    max_bucket_size: int = Field(default=50, ge=1, le=10_000, description="Largest bucket size.")
    setting: BucketSetting | None = Field(
        default=None, description="Buckets to validate and publish, number x size: '9x4, 1x14'."
    )
    layout: Layout | None = Field(
        default=None, description="How values are distributed over buckets. [default: blocks]"
    )
    excess: Literal["refuse", "suppress"] = Field(
        default="refuse", description="Values too frequent for the threshold: refuse, or leave some records out."
    )
    absence: Literal["observable", "unobservable"] = Field(
        default="observable", description="Can attackers know who is in the table (observable), and so who is left out?"
    )
    fake_values: int = Field(default=0, ge=0, le=1000, description="Number of fake values in each bucket.")
    uneven_fakes: Literal["refuse", "state"] = Field(
        default="refuse", description="Values too frequent for fakes to hide: refuse, or state each certainty."
    )
    exclude_negative: bool = Field(default=False, description="Use only fakes that no negative association excludes.")
    no_admissible_fake: Literal["refuse", "weaker"] = Field(
        default="refuse", description="Too few fakes left by exclude_negative: refuse, or take weaker ones."
    )
    allow_certain: bool = Field(
        default=False, description="Publish values that are certain (belief 1), although no threshold is 1."
    )
    max_learning: float | None = Field(
        default=None, gt=0, le=1, description="Highest mean belief of the learning attacker."
    )

    @property
    def learning_limit(self) -> float | None:
        """Return the highest allowed mean belief of an attacker who fits a model to the release; None without limit."""
        return self.max_learning

    @model_validator(mode="before")
    @classmethod
    def _choose_algorithm(cls, source: Any) -> Any:
        if not isinstance(source, dict):
            return source
        if source.get("setting") is not None:
            return {"algorithm": "setting", **source}
        threshold = source.get("threshold")
        rule = threshold.get("default") if isinstance(threshold, dict) else threshold
        others = ("fake_values", "layout", "components", "groups")
        # If thresholds vary with f, the loss rewards small buckets, which make answers less precise.
        varies = isinstance(rule, str) and "f" in rule and not any(source.get(name) for name in others)
        return {"algorithm": "informative", **source} if varies else source

    @model_validator(mode="after")
    def _require_consistent(self) -> Bucketize:
        name, least, most = self.algorithm, self.min_bucket_size, self.max_bucket_size
        fakes, varying, stated = self.fake_values > 0, not self.threshold.is_constant, self.setting is not None
        informative, suppress, uneven = name == "informative", self.excess == "suppress", self.uneven_fakes == "state"
        sets, bounding = "components" if self.components else "groups", self.is_bounding
        conflicts = {
            f"min_bucket_size {least} exceeds max_bucket_size {most}": least > most,
            "fake_values needs a constant threshold, the same for every value": fakes and varying,
            "exclude_negative needs fake values; set fake_values to 1 or more": self.exclude_negative and not fakes,
            "uneven_fakes needs fake values; set fake_values to 1 or more": uneven and not fakes,
            "excess = 'suppress' needs a constant threshold, the same for every value": suppress and varying,
            f"{sets} can't be combined with fake_values, which bounds single values only": bounding and fakes,
            f"{sets} can't be combined with excess = 'suppress', which bounds single values only": bounding
            and suppress,
            f"algorithm = {name!r} searches for a setting itself; with setting use algorithm = 'setting'": (
                stated != (name == "setting")
            ),
            "fake_values can't be combined with setting: only a search finds buckets that can hide them": (
                fakes and stated
            ),
            "layout 'largest-first' needs algorithm = 'anatomy'": self.layout == "largest-first" and name != "anatomy",
            "layout 'lumps' needs algorithm = 'informative'": self.layout == "lumps" and not informative,
            "fake_values can't be combined with algorithm = 'informative'": fakes and informative,
        }
        wrong = next((message for message, is_there in conflicts.items() if is_there), None)
        if wrong is not None:
            raise ValueError(wrong)
        return self

    @property
    def is_bounding(self) -> bool:
        """Return whether sets of values have bounds: by ``components`` or by ``groups``."""
        return bool(self.components or self.groups)

    @property
    def stated_buckets(self) -> dict[int, int]:
        """Return the stated number of buckets by bucket size; empty if no setting is stated."""
        return {int(size): int(number) for number, size in PAIR.findall(self.setting or "")}

    @property
    def effective_layout(self) -> str:
        """Return the layout (the way records are dealt to buckets): the stated one, or the algorithm's default."""
        defaults = {"anatomy": "largest-first", "informative": "lumps"}
        return self.layout or defaults.get(self.algorithm, "blocks")


class HighestBeliefFacts(Facts):
    """The highest beliefs that a release allows, as exact texts such as ``1/4``.

    Attributes:
        overall: The highest belief in a whole sensitive value.
        components: The highest belief in each value of each sensitive column, by column and text of the value.
        bounded: The highest belief in each set of values that has a bound, by its name.
    """

    overall: str
    components: dict[str, dict[str, str]]
    bounded: dict[str, str] = Field(default_factory=dict)


class SureFacts(Facts):
    """How many records an attacker who finds their bucket knows, or believes with more than 1/2.

    Attributes:
        certain: The number of records in buckets where all records have the same value.
        above_half: The number of records in buckets where more than half of the records have the same value.
    """

    certain: int = Field(ge=0)
    above_half: int = Field(ge=0)


class SureFactsByColumn(SureFacts):
    """How many records an attacker knows in any sensitive column, and in each column (``components``)."""

    components: dict[str, SureFacts]


class ChannelFacts(Facts):
    """Singular values of the channel: how much of the differences between groups of records the release preserves.

    The channel is the matrix from the true values of records to what their buckets list on average. Its first singular
    value is 1; the second, the median and the smallest are stated.
    """

    second: float = Field(ge=0)
    median: float = Field(ge=0)
    smallest: float = Field(ge=0)


class CertaintyFacts(Facts):
    """The probabilities that a listed value is real, as exact texts, if buckets list fake values.

    Attributes:
        mean: The mean over all listed values.
        lowest: The probability of the least certain value, over all its listings.
        highest: The probability of the most certain value, over all its listings.
        anywhere: The highest probability of a single listing in one bucket, rounded up; None if it is not stated.
    """

    mean: str
    lowest: str
    highest: str
    anywhere: float | None = Field(default=None, ge=0, le=1)


class GroupBoundFacts(Facts):
    """A bound on a set of values.

    Attributes:
        name: The name of the set.
        codes: The codes of its values.
        threshold: The largest share of a bucket, as an exact fraction.
    """

    name: str
    codes: list[Annotated[int, Field(ge=0, lt=2**31)]] = Field(min_length=1)
    threshold: str = Field(pattern="^[1-9][0-9]{0,37}(/[1-9][0-9]{0,37})?$")


Weighting = Literal["linear", "share"]
SHOWN_COLUMNS = 4  # sensitive columns whose highest belief a person is shown


class SearchFacts(Facts):
    """What the search for bucket sizes and the layout of records in buckets decided.

    Attributes:
        loss: The sum of (size - 1)^2 over all buckets.
        mse: The loss over the number of records minus 1.
        lower_bound: A certified lower bound for the loss of every valid setting.
        gap: By how much the loss exceeds this bound, as a share of the bound.
        setting: The number of buckets by bucket size.
        weighting: How the weighted view weighs values: by the linear estimator, or by shares of buckets.
        left_out: The number of records that are left out.
        bounds: The bounds on sets of values.
        layout: The layout; None in a plan.
    """

    loss: int = Field(ge=0)
    mse: float = Field(ge=0)
    lower_bound: int = Field(ge=0)
    gap: float = Field(ge=0)
    setting: dict[Annotated[str, Field(pattern="^[1-9][0-9]{0,8}$")], Annotated[int, Field(ge=1)]] = Field(min_length=1)
    weighting: Weighting
    left_out: int = Field(default=0, ge=0)
    bounds: list[GroupBoundFacts] = Field(default_factory=list)
    layout: Layout | None = None


class FakeFacts(Facts):
    """Facts on fake values; a release without fakes has the defaults.

    A value is excluded for a record if the release shows it to be rare among records that agree with it in a
    quasi-identifier.

    Attributes:
        fake_values: The number of fake values in every bucket.
        real: How many records have each value, by code.
        certainty: The probabilities that listed values are real.
        uneven: The probability that a listing is real, for values that are too frequent to be hidden, by text.
        weak_fakes: The number of fakes that are excluded for some record of their bucket.
        excluded_real: The number of real listed values that are excluded for some record of their bucket.
    """

    fake_values: int = Field(default=0, ge=0)
    real: list[Annotated[int, Field(ge=0, le=2**53)]] | None = None
    certainty: CertaintyFacts | None = None
    uneven: dict[str, str] = Field(default_factory=dict)
    weak_fakes: int | None = Field(default=None, ge=0)
    excluded_real: int | None = Field(default=None, ge=0)


class BeliefFacts(Facts):
    """What the tables of a release reveal. A part that is not measured is None.

    Attributes:
        mean_belief: The mean belief in the true value, over all records.
        channel: Singular values of the matrix from true to listed values, which show what groups of records reveal.
        highest_belief: The highest beliefs.
        certain: How many records an attacker who finds their bucket knows.
    """

    mean_belief: float | None = Field(default=None, ge=0, le=1 + 1e-9)
    channel: ChannelFacts | None = None
    highest_belief: HighestBeliefFacts | None = None
    certain: SureFactsByColumn | None = None


class BucketFacts(BeliefFacts, FakeFacts, SearchFacts):
    """The facts that a plan and a release have in common."""

    title: ClassVar = "plan"
    details: ClassVar = frozenset({"loss", "least loss", "layout", "highest belief", "certain", "mean belief"})

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Return (bucket size, number of buckets) for each size."""
        return [(int(size), number) for size, number in self.setting.items()]

    @property
    def reaches_certainty(self) -> bool:
        """Return whether some value of a sensitive column is certain: its highest belief is 1."""
        columns = self.highest_belief.components if self.highest_belief else {}
        return any("1" in of.values() for of in columns.values())

    def count_left_out(self) -> int:
        """Return the number of records that are left out, because their value is too frequent."""
        return self.left_out

    def describe(self) -> list[tuple[str, str]]:
        """Return (title, text) of the lines that are shown: buckets, loss and its bound, beliefs and fake values."""
        error, above = sqrt(self.loss), "this one is best"
        if self.gap:
            above = f"the error is at most {format_figure(error - sqrt(self.lower_bound))} records above the least"
        return [
            ("buckets", f"{', '.join(f'{number:,} x {size}' for size, number in self.sizes)}  (number x size)"),
            ("loss", f"{self.loss:,}  (an error of {error:,.0f} records; mean squared error {self.mse:.4g})"),
            (
                "least loss",
                f"no setting has less than {self.lower_bound:,}; {above}",
            ),
            *([("layout", self.layout)] if self.layout else []),
            *self._describe_beliefs(),
            *self._list_remarks(),
            *(self._describe_fakes() if self.fake_values else []),
        ]

    def _list_remarks(self) -> list[tuple[str, str]]:
        return []

    def _describe_beliefs(self) -> list[tuple[str, str]]:
        """Return (title, text) of the lines on highest beliefs, bounded sets of values, and records that are known."""
        highest, certain, mean = self.highest_belief, self.certain, self.mean_belief
        if highest is None or certain is None:
            return []
        tops = [(name, *max(of.items(), key=lambda item: Fraction(item[1]))) for name, of in highest.components.items()]
        by_column = [f"{most} ({name}: {value})" for name, value, most in tops[:SHOWN_COLUMNS]]
        combined = [f"{highest.overall} (together)"] if len(tops) > 1 else []
        lines = [("highest belief", ", ".join([*by_column, *combined]))]
        stated = [(one.name, Fraction(one.threshold)) for one in self.bounds if one.name in highest.bounded]
        if stated:
            stated.sort(key=lambda one: -Fraction(highest.bounded[one[0]]) / one[1])
            shown = [f"{name} {highest.bounded[name]} (at most {fraction_text(most)})" for name, most in stated]
            more = f", and {len(stated) - SHOWN_COLUMNS} more" if len(stated) > SHOWN_COLUMNS else ""
            lines.append(("bounded", ", ".join(shown[:SHOWN_COLUMNS]) + more))
        known = f"for {certain.certain:,} records; a value is likelier than not for {certain.above_half:,}"
        lines.append(("certain", known))
        if mean is not None:
            lines.append(("mean belief", f"{mean:.3f}  (in the true value, over all records)"))
        return lines

    def _describe_fakes(self) -> list[tuple[str, str]]:
        """Return (title, text) of the lines on fake values and on how certain the real ones are."""
        lines = [("fake values", f"{self.fake_values} in every bucket")]
        if self.certainty:
            mean, low, high = (float(Fraction(getattr(self.certainty, name))) for name in ("mean", "lowest", "highest"))
            anywhere = self.certainty.anywhere
            most = f"; in one bucket at most {anywhere:.4f}" if anywhere is not None else ""
            lines.append(("real", f"{mean:.4f} of what is listed, {low:.4f} to {high:.4f} by value{most}"))
        if self.uneven:
            of = (f"{float(Fraction(share)):.4f} of what is listed of {label}" for label, share in self.uneven.items())
            lines.append(("too frequent", f"real: {', '.join(of)}"))
        if self.excluded_real is not None:
            number = f"{self.excluded_real:,} listed values"
            lines.append(("real for sure", f"{number} that associations exclude for somebody there"))
        return lines


class BucketizeFacts(BucketFacts):
    """The facts that a bucketized release states in its manifest."""

    layout: Layout


class BucketizePlan(BucketFacts):
    """The facts of a plan, with predictions about its release.

    Attributes:
        search_seconds: The processor seconds that the search took.
        foreseen: For every sensitive value (text, threshold, highest belief, number of records, even share). Threshold
            and belief are exact texts. The even share h measures the precision of counts: they are as precise as if
            each bucket either had the share h of the value or lacked it.
        not_allowed: The values for which publishing would be refused, because they would be certain.
        remarks: Notes for the publisher.
        learning_belief: The mean belief of an attacker who fits a model to the release, measured on a part of it; None
            if not known.
        guessing: The frequency of the most frequent value: how often somebody who always guesses it is right.
    """

    search_seconds: float = Field(default=0.0, exclude=True)
    foreseen: list[tuple[str, str, str, int | None, float | None]] = Field(default_factory=list, exclude=True)
    not_allowed: list[str] = Field(default_factory=list)
    remarks: list[str] = Field(default_factory=list)
    learning_belief: float | None = None
    guessing: float = Field(default=0.0, exclude=True)

    @property
    def peak(self) -> float:
        """Return the highest belief in a value with a threshold below 1; 1 if there is no such value."""
        beliefs = (Fraction(found) for _, bound, found, *_ in self.foreseen if Fraction(bound) < 1)
        return float(max(beliefs, default=Fraction(1)))

    def list_bounds(self) -> list[tuple[Any, ...]]:
        """Return the bounds of sets of values, and then those of all values, each with what the release will reach.

        A bound is (name, bound, highest belief, number of records, even share), and a further True for a set. These
        are the first fields of ``VerifiedBound``, in the same order.
        """
        reached = self.highest_belief.bounded if self.highest_belief else {}
        sets = [
            (one.name, one.threshold, reached[one.name], None, None, True) for one in self.bounds if one.name in reached
        ]
        return [*sets, *self.foreseen]

    def _list_remarks(self) -> list[tuple[str, str]]:
        belief, lines = self.learning_belief, []
        if belief is not None:
            beside = f"the most frequent value has {self.guessing:.0%}"
            text = f"at least {belief:.0%} sure of its best guess ({beside}); no bound limits it"
            lines.append(("learning attacker", text))
        refused = [("refused", f"as certain: {', '.join(self.not_allowed)}")] if self.not_allowed else []
        return [*lines, *(("note", remark) for remark in self.remarks), *refused]

    def count_search_seconds(self) -> float:
        """Return the processor seconds that the search took."""
        return self.search_seconds


PARAMETERS = Bucketize
