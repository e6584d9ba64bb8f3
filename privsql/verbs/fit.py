"""Fit a model to a release, which makes its answers more precise."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privsql.calls import as_optional_path
from privsql.engine.database import options_from
from privsql.errors import UsageError
from privsql.outcomes import Outcome, Part, pairs
from privsql.releases.fitted import (
    ModelParameters,
    NumberedRecords,
    fit_model,
    restore_from,
    store_model,
)
from privsql.releases.opened import open_release
from privsql.source.targets import as_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Unpack

    from privsql.calls import PathLike
    from privsql.engine.database import RunKeywords


@dataclass(frozen=True)
class FittedModel(Outcome):
    """What ``fit`` returns about a model that it has fitted, or read from a file.

    Attributes:
        release: The place of the release.
        records: The number of records of the release.
        seconds: How long it took.
        belief: The mean probability that the model gives to its best guess of a record's value.
        stored: The model's file in the user's cache; None if there is no cache.
        to: The file to which its parameters were written; None if the caller asked for none.
        fitted_share: The share of the records from which the model has learnt; below 1 if not all buckets fit into
            memory.
    """

    title = "A model of a release"

    release: Path
    records: int
    seconds: float
    belief: float
    stored: Path | None
    to: Path | None
    fitted_share: float = 1.0

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield what people see: where the model is stored, and how sure it is of records' sensitive values."""
        part = "" if self.fitted_share == 1 else f", fitted to {self.fitted_share:.0%} of these, which memory holds"
        lines = {
            "attacker": f"the model's best guess of a record's value is right in about {self.belief:.0%} of cases; "
            "anyone who has the release can fit it",
            "model": f"of {self.records:,} records{part}, {self.seconds:,.1f} s",
            "stored": str(self.stored) if self.stored else "no; the cache is switched off",
            "parameters": str(self.to) if self.to else None,
        }
        yield pairs((name, text) for name, text in lines.items() if text is not None)


def fit(
    release: PathLike,
    *,
    to: PathLike | None = None,
    parameters: PathLike | None = None,
    **how: Unpack[RunKeywords],
) -> FittedModel:
    """Fit a model to a release and store it in the user's cache, where other verbs find it.

    The stored model is always computed from the release and the parameters, so everybody who has the release can fit
    the same model. privsql knows no attacker that learns more from a release than this model.

    Args:
        release: The release.
        to: A file to which the model's parameters are also written, to give them to others.
        parameters: A file of parameters that is read instead of fitting.
        **how: How the engine runs (``RunKeywords``).

    Raises:
        UsageError: There is nothing to fit, the parameters belong to another release, or nothing would be stored.
        InfeasibleError: No model can be fitted to this release.
    """
    target, given = as_target(release, how.get("connection")), as_optional_path(parameters, "parameters")
    file, clock = as_optional_path(to, "to"), time.monotonic()
    if file is not None and file.exists():
        raise UsageError(f"{file} exists; choose another path")
    with options_from(how, fit) as options, open_release(target, options=options) as (_, attached):
        options.report.start_step("Reading the release")
        records = NumberedRecords.find(attached)
        if given is None:
            arrays, model, stated = fit_model(attached, records.digest(), options.report)
        else:
            arrays, stated = attached.read_arrays(), ModelParameters.read(given)
            model = restore_from(stated, arrays, records.digest())
        options.report.start_step("Drawing completed tables")
        beliefs = model.find_beliefs()
        stored = store_model(arrays, beliefs, stated)
        if stored is None and file is None:
            raise UsageError("the cache is switched off (PRIVSQL_CACHE); give option to")
        if file is not None:
            stated.write(file)
        figures = beliefs.best_guess, stored, file, model.fitted_share
    return FittedModel(target.path, len(arrays.bucket), time.monotonic() - clock, *figures)
