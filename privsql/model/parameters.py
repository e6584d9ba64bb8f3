"""What parameters of mechanisms have in common, and exact numbers as their fields: read and kept as fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from privsql.exact import fraction, text

VERSION = r"^[0-9]{1,9}(\.[0-9]{1,9}){1,3}([-+.]?(a|b|rc|dev|post|alpha|beta)[0-9A-Za-z.+-]{0,30})?$"


Order = Literal["stream", "portable"]  # how records take places: as the key's stream deals them, or by keyed hashes
NullPolicy = Literal["value", "suppress", "refuse"]  # what becomes of NULL in a column
Version = Annotated[str, Field(pattern=VERSION)]


class Parameters(BaseModel):
    """Base of what a publisher asks of a mechanism; a mechanism narrows both fields to literals."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    algorithm: str


class NoiseFacts(BaseModel):
    """What the manifest of a private release states of its noise: nothing but what the published tables tell."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    noise: Literal["opendp", "seed"]
    opendp: Version


NUMBER = {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"type": "string"}]}

POSITIVE = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}
LARGEST_EPSILON = 100  # beyond it nothing is protected, and noise of scale 0 would not be noise
SMALLEST_EPSILON = Fraction(1, 10**6)


def _share(value: object) -> Fraction:
    number = fraction(value)
    if not 0 < number <= 1:
        raise ValueError(f"{value} lies outside (0, 1]")
    return number


Share = Annotated[Fraction, BeforeValidator(_share), PlainSerializer(text), WithJsonSchema(NUMBER)]
"""An exact number in (0, 1]: a threshold, a probability."""


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


NUMBERS = {"anyOf": [{"type": "number"}, {"type": "string"}]}
Exact = Annotated[Fraction, BeforeValidator(fraction), PlainSerializer(text), WithJsonSchema(NUMBERS)]
"""Any exact number."""
Epsilon = Annotated[Fraction, BeforeValidator(_epsilon), PlainSerializer(text), WithJsonSchema(POSITIVE)]
"""What a differentially private release spends."""
Positive = Annotated[Fraction, BeforeValidator(_positive), PlainSerializer(text), WithJsonSchema(POSITIVE)]
"""An exact number above 0."""
