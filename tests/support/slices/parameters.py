"""Parameters of a sixth mechanism for tables."""

from __future__ import annotations

from typing import Literal

from privsql.mechanisms.bucketize.parameters import Bucketize


class Slices(Bucketize):
    """Buckets by another name."""

    kind: Literal["slices"] = "slices"  # type: ignore[assignment]


PARAMETERS = Slices
