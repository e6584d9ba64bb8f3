"""Checks of a published noisy tree that do not depend on what its partitions are."""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import TYPE_CHECKING

from privsql.dpnoise import scale

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from privsql.mechanisms.noisytree.tree import Tree
    from privsql.model.manifest import Manifest

CLOSE = 1e-9  # relative difference of a threshold that doubles may make


def is_cutoff(least: int, empty: int, passing: Fraction, spent: Fraction) -> bool:
    """Whether ``least`` is ``budget.cutoff`` of the others, up to ``CLOSE``."""
    alpha = float(spent)
    exact = math.log(empty / (float(passing) * (1 + math.exp(-alpha)))) / alpha
    return least >= 1 and least >= exact - CLOSE * least and (least == 1 or least - 1 < exact + CLOSE * least)


def wrong_scales(tree: Tree, widths: Sequence[float | None]) -> list[str]:
    """Rows whose noise has another scale than the least double that spends no more than the stated budget."""
    wrong = [] if widths[0] is None else ["part 0 was never counted"]
    for code, width in sorted(set(zip(tree.spent[1:].tolist(), widths[1:], strict=True)), key=str):
        budget = tree.budgets[code]
        if width != scale(budget):
            wrong.append(f"budget {budget}, scale {width}")
    return wrong


def known_opendp(manifest: Manifest) -> list[str]:
    """A release that was made with a newer OpenDP than the one that is installed, or with an unknown one."""
    stated, here = (str(v).split(".") for v in (manifest.facts["opendp"], version("opendp")))
    known = all(part.isdigit() for part in stated[:2]) and len(stated) >= 2
    return [] if known and [*map(int, stated[:2])] <= [*map(int, here[:2])] else [f"OpenDP {manifest.facts['opendp']}"]
