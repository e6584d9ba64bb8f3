"""The values that there can be: a public list or query, or those that occur."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Universe(BaseModel):
    """The items that a record may hold, in the order in which the taxonomy groups them.

    A public list of ``items``, or a ``query`` whose first column lists them; or ``data``: those that occur, which tells
    of an item in a single record that it occurs, and is no part of the guarantee.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    items: tuple[str, ...] | None = None
    query: str | None = None
    data: bool = False

    @property
    def sources(self) -> int:
        """How many sources are given; one is needed."""
        return (self.items is not None) + (self.query is not None) + self.data

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
        if self.sources != 1:
            raise ValueError("give a list of items, { query = ... }, or 'data' (which the guarantee does not cover)")
        if self.items is not None and (not self.items or len(set(self.items)) < len(self.items)):
            raise ValueError("the list of items is empty" if not self.items else "an item stands twice in the list")
        return self
