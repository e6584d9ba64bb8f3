"""Find a mechanism by its kind (such as ``setvalued``) and its algorithm (such as ``views``), as a specification says.

A mechanism is imported only when it is needed.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from privsql.errors import UsageError

if TYPE_CHECKING:
    from privsql.mechanisms.base import Mechanism
    from privsql.model.parameters import Parameters

# By kind (the name in a specification): the classes of its mechanisms, each with its algorithms. The parameters of a
# kind are PARAMETERS of the module ``parameters`` in the folder of its first class.
KINDS: dict[str, dict[str, tuple[str, ...]]] = {
    "bucketize": {
        "privsql.mechanisms.bucketize.mechanism.Bucketization": (
            "anatomy",
            "one-size",
            "two-size",
            "multi-size",
            "optimal",
            "informative",
            "setting",
        ),
    },
    "randomize": {
        "privsql.mechanisms.perturb.mechanism.Perturbation": ("pp", "up", "pp-paper"),
        "privsql.mechanisms.label_tables.mechanism.LabelTables": ("tables",),
    },
    "permute": {
        "privsql.mechanisms.permute.mechanism.Permutation": ("nested", "exact", "reapply-last", "reapply-all", "cells"),
    },
    "setvalued": {
        "privsql.mechanisms.views.mechanism.ItemViews": ("views", "basic"),
        "privsql.mechanisms.diffpart.mechanism.ItemDiffPart": ("diffpart",),
    },
    "contingency": {
        "privsql.mechanisms.marginals.mechanism.Marginals": ("marginals",),
        "privsql.mechanisms.diffpart.mechanism.ColumnDiffPart": ("diffpart",),
    },
}
# The kinds and algorithms that ``init`` tries for a table with a sensitive column, in this order.
PROMISES = {"tables": ("randomize", "tables"), "bucketize": ("bucketize", "optimal")}
DEFAULT = next(iter(KINDS))  # the kind of a specification that names none


def get_mechanism(kind: str, algorithm: str) -> Mechanism[Any, Any]:
    """Return the mechanism of a kind (such as ``setvalued``) that has an algorithm (such as ``views``).

    Raises:
        UsageError: This version of privsql does not know the kind or the algorithm.
    """
    classes = _get_classes(kind)
    place = next((place for place, algorithms in classes.items() if algorithm in algorithms), None)
    if place is None:
        known = ", ".join(one for algorithms in classes.values() for one in algorithms)
        raise UsageError(f"algorithm {algorithm!r} is not one of {known}")
    mechanism = _load_class(place)
    if (mechanism.kind, mechanism.algorithms) != (kind, classes[place]):
        stated = f"{mechanism.kind!r} with {', '.join(mechanism.algorithms)}"
        raise TypeError(f"{place} is registered as {kind!r} with {', '.join(classes[place])} and calls itself {stated}")
    return mechanism


def get_default_mechanism(kind: str) -> Mechanism[Any, Any]:
    """Return the mechanism of a kind (such as ``setvalued``) that has the kind's default algorithm."""
    return get_mechanism(kind, get_parameters(kind).model_fields["algorithm"].default)


def get_parameters(kind: str) -> type[Parameters]:
    """Return the pydantic model of the parameters of a kind (such as ``setvalued``), without importing a mechanism."""
    folder = next(iter(_get_classes(kind))).rsplit(".", 2)[0]
    parameters: type[Parameters] = import_module(f"{folder}.parameters").PARAMETERS
    return parameters


def _get_classes(kind: str) -> dict[str, tuple[str, ...]]:
    if kind not in KINDS:
        raise UsageError(f"mechanism {kind!r} is not one of {', '.join(KINDS)}")
    return KINDS[kind]


@cache
def _load_class(place: str) -> Mechanism[Any, Any]:
    module, name = place.rsplit(".", 1)
    mechanism: Mechanism[Any, Any] = getattr(import_module(module), name)()
    return mechanism
