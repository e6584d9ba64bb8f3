"""What an adversary found: the one row that each attack fills in the table of ``privsql attack``."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

PROMISED = "promised: the mechanism resists this adversary"
OUTSIDE = "outside the promise: nothing guarantees resistance, the figure says how far this adversary gets"


@dataclass(frozen=True)
class Finding:
    """One adversary against one release.

    ``knows``: what it knows besides the algorithm, in plain words; ``promised``: whether the mechanism promises to
    resist it; ``attacked``: how many ``unit`` (records, buckets, columns) were attacked.

    ``mean``, ``highest``: mean and maximum over the attacked of the posterior of the best guess; ``above``: share of
    them for which the posterior of some value exceeds that value's promised bound, ``twice``: exceeds twice the bound
    (a bound that buckets use up entirely is exceeded by whatever is learnt, however little); ``baseline``: probability
    that who guesses from the overall frequencies f alone is right, max f; ``gain`` = mean / baseline.

    With the source, expected over the records that share their quasi-identifiers: ``right``: share of best guesses
    that are right; ``true_mean``: mean posterior of the true value; ``true_above``: share of records for which the
    posterior of the true value exceeds its bound.

    ``leaks``: a fault of the release was found that is no matter of probabilities. ``applies``: False where the
    adversary has nothing to attack in a release of this kind. ``curve``: certainty by known records, theory beside
    measurement; ``values``: the same by sensitive value, where it depends on that.
    """

    adversary: str
    knows: str
    promised: bool
    attacked: int = 0
    unit: str = "records"
    mean: float | None = None
    highest: float | None = None
    above: float | None = None
    twice: float | None = None
    baseline: float | None = None
    right: float | None = None
    true_mean: float | None = None
    true_above: float | None = None
    leaks: bool = False
    applies: bool = True
    notes: tuple[str, ...] = ()
    curve: tuple[dict[str, float], ...] = field(default=())
    values: tuple[dict[str, Any], ...] = field(default=())

    @property
    def gain(self) -> float | None:
        """How many times likelier the best guess is right than one from the overall frequencies."""
        return self.mean / self.baseline if self.mean is not None and self.baseline else None

    @property
    def exceeded(self) -> bool:
        """Whether a promise is broken: only an adversary that the mechanism promises to resist can show that."""
        return self.promised and (self.leaks or bool(self.above))

    @property
    def standing(self) -> str:
        """Where the adversary stands to the promise, in words."""
        return PROMISED if self.promised else OUTSIDE

    @property
    def kept(self) -> str:
        """What became of the promise, in a word or two."""
        if not self.applies:
            return "not applicable"
        if not self.promised:
            return "not promised" if not self.leaks else "not promised; found"
        return "BROKEN" if self.exceeded else "kept"

    def as_json(self) -> dict[str, Any]:
        """An entry of ``--json``."""
        own = {part.name: getattr(self, part.name) for part in fields(self)}
        own |= {"notes": list(self.notes), "curve": list(self.curve), "values": list(self.values)}
        return own | {"gain": self.gain, "exceeded": self.exceeded, "standing": self.standing}
