"""Exact numbers as fields of validated parameters: read as they were written, written as fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from privsql.exact import fraction, text

NUMBER = {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"type": "string"}]}


def _share(value: object) -> Fraction:
    number = fraction(value)
    if not 0 < number <= 1:
        raise ValueError(f"{value} lies outside (0, 1]")
    return number


Share = Annotated[Fraction, BeforeValidator(_share), PlainSerializer(text), WithJsonSchema(NUMBER)]
"""An exact number in (0, 1]: a threshold, a probability."""
