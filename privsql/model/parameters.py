"""The base classes of parameters and facts of mechanisms, and the exact numbers that their fields hold."""

from __future__ import annotations

import hashlib
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    WithJsonSchema,
)

from privsql.exact import Linear, as_fraction, fraction_text, parse_linear

if TYPE_CHECKING:
    from collections.abc import Callable

# Queries --------------------------------------------------------------------------------------------------------------
# A publisher's own SQL may contain secrets. So a release states only its digest, by which the publisher recognizes it.

STATED = {"stated": True}  # the context in which parameters are written into a manifest
QUERY_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def _state_query(sql: str, info: SerializationInfo) -> str:
    if not info.context or QUERY_DIGEST.fullmatch(sql):
        return sql
    return f"sha256:{hashlib.sha256(sql.encode()).hexdigest()}"


Query = Annotated[str, PlainSerializer(_state_query)]
"""A SELECT that the publisher wrote."""


# Exact numbers --------------------------------------------------------------------------------------------------------
# Exact numbers are read and kept as fractions.

VERSION = r"^[0-9]{1,9}(\.[0-9]{1,9}){1,3}([-+.]?(a|b|rc|dev|post|alpha|beta)[0-9A-Za-z.+-]{0,30})?$"
Order = Literal["stream", "portable"]  # records are placed by random numbers from the key, or by keyed hashes
NullPolicy = Literal["value", "suppress", "refuse"]  # what happens to NULL in a column
Version = Annotated[str, Field(pattern=VERSION)]


WORDS = 1000  # the most characters of a text that the publisher adds to a release
Wording = Literal[  # the subjects of these texts
    "purpose", "recipient", "recipient_controls", "contact", "expert", "qualification", "valid_until", "date_of_review"
]  # fmt: skip


class Parameters(BaseModel):
    """The base class of what a publisher asks of a mechanism. A subclass restricts both fields to its own names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    algorithm: str

    def as_stated(self) -> dict[str, Any]:
        """Return the parameters as a manifest states them.

        Those that are None are left out. A query of the publisher is replaced by its digest, as it may hold secrets.
        """
        return self.model_dump(mode="json", exclude_none=True, context=STATED)

    @property
    def learning_limit(self) -> float | None:
        """Return the highest mean belief that an attacker who trains a model on the release may reach.

        The result is None if the publisher sets no limit.
        """
        return None


class Facts(BaseModel):
    """The base class of the facts of a release, which a plan predicts and a manifest states.

    Facts say what a mechanism did: sizes, budgets, scales of noise and the like.
    """

    title: ClassVar[str] = "facts"  # the heading under which people are shown the facts
    details: ClassVar[frozenset[str]] = frozenset()  # names of the lines that only --verbose shows

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def join_parts(cls, *parts: Facts, **more: Any) -> Self:
        """Return facts that unite the fields of several parts and those in ``more``.

        If several set a field, the last one counts; ``more`` counts above all.
        """
        return cls(**{name: getattr(part, name) for part in parts for name in part.model_fields_set} | more)

    def as_json(self) -> dict[str, Any]:
        """Return the facts as a JSON object, without fields that have their default."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def describe(self) -> list[tuple[str, str]]:
        """Return (title, text) of each line that a person is shown."""
        return []

    def list_bounds(self) -> list[tuple[Any, ...]]:
        """Return the bounds on an attacker's beliefs that a plan predicts, for values and groups of values.

        Each tuple holds the value, the promised bound, the highest belief that the planned release leads to, and
        possibly more fields in the order of ``VerifiedBound``. The list is empty for mechanisms that predict no bounds.
        """
        return []

    def tabulate(self) -> list[tuple[object, ...]]:
        """Return the rows of a table for people, titles first; empty if there is no table."""
        return []

    def require_records(self, records: int) -> None:
        """Raise ``InfeasibleError`` if a plan predicts that a release of so many records would be refused.

        Only the verb ``plan`` asks this, because a private release must not depend on the exact number of records.
        """

    def list_warnings(self) -> list[str]:
        """Return the warnings that a publisher should read before anybody relies on the release."""
        return []

    def describe_precision(self) -> str:
        """Return in words how precisely the release shows single values, such as how many values are nearly known.

        The text is empty for mechanisms that do not describe this; the summary of a release then has another line.
        """
        return ""

    def count_left_out(self) -> int:
        """Return the number of records that the mechanism left out."""
        return 0

    def count_waiting(self) -> int:
        """Return how many new records wait for a later release, because the guarantee does not cover them yet."""
        return 0

    def count_search_seconds(self) -> float | None:
        """Return the processor seconds that the search for the plan took; None if nothing was searched."""
        return None


NoiseOrigin = Literal["opendp", "seed"]


def _read_exact(holds: Callable[[Fraction], bool], wrong: str) -> BeforeValidator:
    """Return a validator that reads an exact number and checks it.

    Args:
        holds: Returns whether a number is allowed.
        wrong: The message for a number that is not allowed; ``{}`` stands for the number.
    """

    def read(value: object) -> Fraction:
        number = as_fraction(value)
        if not holds(number):
            raise ValueError(wrong.format(value))
        return number

    return BeforeValidator(read)


AS_TEXT = PlainSerializer(fraction_text)
NUMBER = {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"type": "string"}]}
POSITIVE = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}
NUMBERS = {"anyOf": [{"type": "number"}, {"type": "string"}]}
LARGEST_EPSILON = 100  # a larger epsilon protects nothing, and the scale of its noise may be 0
SMALLEST_EPSILON = Fraction(1, 10**6)
SMALLEST_DELTA, LARGEST_DELTA = Fraction(1, 10**18), Fraction(1, 10**5)
_SHARE = _read_exact(lambda one: 0 < one <= 1, "{} lies outside (0, 1]")
_EPSILON = _read_exact(
    lambda one: SMALLEST_EPSILON <= one <= LARGEST_EPSILON,
    f"epsilon {{}} lies outside [{fraction_text(SMALLEST_EPSILON)}, {LARGEST_EPSILON}]",
)
_DELTA = _read_exact(
    lambda one: not one or SMALLEST_DELTA <= one <= LARGEST_DELTA, "delta {} is neither 0 nor in [1e-18, 1e-5]"
)
_POSITIVE = _read_exact(lambda one: one > 0, "{} must be above 0")

Exact = Annotated[Fraction, BeforeValidator(as_fraction), AS_TEXT, WithJsonSchema(NUMBERS)]
"""Any exact number."""
Share = Annotated[Fraction, _SHARE, AS_TEXT, WithJsonSchema(NUMBER)]
"""An exact number in (0, 1]: a threshold, a probability."""
Positive = Annotated[Fraction, _POSITIVE, AS_TEXT, WithJsonSchema(POSITIVE)]
"""An exact number above 0."""
Epsilon = Annotated[Fraction, _EPSILON, AS_TEXT, WithJsonSchema(POSITIVE)]
"""The budget of a differentially private release."""
Delta = Annotated[Fraction, _DELTA, AS_TEXT, WithJsonSchema(NUMBER)]
"""The probability of outcomes that epsilon does not bound; 0 if it bounds all."""
DELTA = (
    "0: pure differential privacy. Above: (epsilon, delta) by zero-concentrated privacy, with discrete Gaussian noise. "
    "Choose it far below 1/records, such as 1e-9."
)
Rule = Annotated[
    Linear,
    BeforeValidator(lambda v: v if isinstance(v, Linear) else parse_linear(v)),
    PlainSerializer(str),
    WithJsonSchema(NUMBER | {"description": "a constant, or linear in the frequency f: '8*f + 0.02'"}),
]
"""A threshold: a constant, or linear in a frequency."""


# Noise ---------------------------------------------------------------------------------------------------------------

ALLOW_EMPTY = "Publish even if most is noise: uninformative tables, or a tree with more pruned than kept."


MOST_RECORDS = 1_000


def _is_one(value: object) -> bool:
    return value == 1


MaxRecords = Annotated[int, Field(ge=1, le=MOST_RECORDS, exclude_if=_is_one)]
"""The most records of a person that are taken; they share the person's budget."""
MAX_RECORDS = "Most records of a person (source.person), which share the budget: noise grows in proportion."


def describe_noise(origin: NoiseOrigin, opendp: str) -> tuple[str, str]:
    """Return (title, text) of the line that says where noise was drawn from.

    Args:
        origin: The source of randomness.
        opendp: The version of OpenDP.
    """
    return "noise", f"OpenDP {opendp}" if origin == "opendp" else "seeded: NOT private, for tests only"


def warn_remaining(number: int, remaining: float, total: float, what: str) -> list[str]:
    """Return a warning if a release of partition trees is nearly empty; else an empty list.

    Such a release divides the records into ever smaller parts, and drops a part with a small noisy count. The warning
    comes if it kept no part, or fewer records than it dropped.

    Args:
        number: The number of parts that were kept.
        remaining: The estimated number of records in these parts.
        total: The estimated number of all records.
        what: What a kept part is called, such as ``item set``.
    """
    if not number:
        return [f"no {what} was kept: every count is 0; a larger epsilon keeps more"]
    message = f"more was pruned (about {total - remaining:,.0f} records) than kept ({remaining:,.0f})"
    return [f"{message}: sums of counts are too small; a larger epsilon keeps more"] if 2 * remaining < total else []
