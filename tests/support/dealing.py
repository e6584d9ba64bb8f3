"""Deal drawn values to the lists of a release anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from privsql.answers.bucket_posteriors import Ints, Shape


def deal_values(shapes: Sequence[Shape], drawn: Ints, noise: np.random.Generator) -> NDArray[np.intp]:
    """Return the record of each place (n,): every value's records take its places in random order."""
    slots = np.empty(len(drawn), dtype=np.int64)
    for shape in shapes:
        slots[shape.records] = np.repeat(shape.values.ravel(), shape.counts.astype(np.int64).ravel()).reshape(
            shape.records.shape
        )
    shuffled = noise.permutation(len(drawn))
    dealt = np.empty(len(drawn), dtype=np.intp)
    dealt[np.argsort(slots, kind="stable")] = shuffled[np.argsort(drawn[shuffled], kind="stable")]
    return dealt
