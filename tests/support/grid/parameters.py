"""Parameters of a sixth mechanism that is differentially private."""

from __future__ import annotations

from typing import Literal

from privsql.mechanisms.contingency.parameters import Contingency


class Grid(Contingency):
    """Contingency tables by another name."""

    kind: Literal["grid"] = "grid"  # type: ignore[assignment]


PARAMETERS = Grid
