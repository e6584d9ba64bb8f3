"""What a publisher asks of a set-valued release: frozen, validated, exact."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema, model_validator

from privsql.exact import fraction, text

LARGEST_FAN_OUT = 30  # a sub-partition is a bit mask over the children of a node
LARGEST_EPSILON = 100  # beyond it nothing is protected, and noise of scale 0 would not be noise
SMALLEST_EPSILON = Fraction(1, 10**6)
PROPOSED = {"kind": "setvalued", "epsilon": "1", "universe": "data"}  # what ``init`` writes
TINY_UNIVERSE = 20  # items for which 'basic' may list every set


def _epsilon(value: object) -> Fraction:
    number = fraction(value)
    if not SMALLEST_EPSILON <= number <= LARGEST_EPSILON:
        raise ValueError(f"epsilon {value} lies outside [{text(SMALLEST_EPSILON)}, {LARGEST_EPSILON}]")
    return number


def _positive(value: object) -> Fraction:
    number = fraction(value)
    if number <= 0:
        raise ValueError(f"{value} must be above 0")
    return number


_NUMBER = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}
Epsilon = Annotated[Fraction, BeforeValidator(_epsilon), PlainSerializer(text), WithJsonSchema(_NUMBER)]
Positive = Annotated[Fraction, BeforeValidator(_positive), PlainSerializer(text), WithJsonSchema(_NUMBER)]


class Universe(BaseModel):
    """The items that a record may hold, in the order in which the taxonomy groups them.

    A public list of ``items``, or a ``query`` whose first column lists them; or ``data``: those that occur, which tells
    of an item in a single record that it occurs, and is no part of the guarantee.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    items: tuple[str, ...] | None = None
    query: str | None = None
    data: bool = False

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return {"items": tuple(str(item) for item in given)}
        if given == "data":
            return {"data": True}
        return given

    @model_validator(mode="after")
    def _one_source(self) -> Universe:
        if (self.items is not None) + (self.query is not None) + self.data != 1:
            raise ValueError("give a list of items, { query = ... }, or 'data' (which the guarantee does not cover)")
        if self.items is not None and (not self.items or len(set(self.items)) < len(self.items)):
            raise ValueError("the list of items is empty" if not self.items else "an item stands twice in the list")
        return self


class Facts(BaseModel):
    """What a release's manifest states of its tree: nothing but what follows from the published tables."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    items: int = Field(ge=1)
    inner_nodes: int = Field(ge=1)
    partitions: int = Field(ge=0)
    item_sets: int = Field(ge=0)
    imputed: int = Field(ge=0)
    without_items: int | None
    estimated_records: float
    universe_is_public: bool
    noise: Literal["opendp", "seed"]
    opendp: str


class SetValued(BaseModel):
    """Differentially private item sets: adding or removing one record changes no probability by more than e^epsilon.

    ``c1`` and ``c2`` set the paper's thresholds sqrt(2)*c1/budget (item sets) and sqrt(2)*c2*height/budget (others).
    Without them thresholds are the least with which few empty sub-partitions pass: in expectation at most ``tau``
    (``tau_sets`` where they are item sets) if each inner node of the taxonomy were expanded once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["setvalued"] = "setvalued"
    algorithm: Literal["diffpart", "basic"] = "diffpart"
    epsilon: Epsilon
    universe: Universe
    fan_out: int = Field(default=10, ge=2, le=LARGEST_FAN_OUT)
    c1: Positive | None = None
    c2: Positive | None = None
    tau: Positive = Fraction(4)
    tau_sets: Positive = Fraction(36)

    @model_validator(mode="after")
    def _consistent(self) -> SetValued:
        if (self.c1 is None) != (self.c2 is None):
            raise ValueError("c1 and c2 belong together: give both, or neither for the automatic rule")
        if self.algorithm == "basic" and self.c2 is not None:
            raise ValueError("c1 and c2 belong to algorithm = 'diffpart'")
        return self
