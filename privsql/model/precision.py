"""How precise the counts of a release are, as a closed form says before anything is fitted or measured."""

from __future__ import annotations

from dataclasses import dataclass

ASKED, FEW_ASKED = 500, 100  # records of the counts whose errors are told
GROUP = 1000  # records of the group of which the error of a share is told
TWO_SIDED = 1.96  # standard errors
USELESS = 0.2  # of a count of ``ASKED`` records of the most frequent protected value; above it a release is of no use
WANTED = 0.1  # relative error that the setting in ``remedy`` has


@dataclass(frozen=True)
class Precision:
    """The errors of counts of the least precise protected value.

    Attributes:
        value: The value; None if all values have the same errors.
        error: The relative standard error of a count of ``ASKED`` records.
        few: The relative standard error of a count of ``FEW_ASKED`` records.
        share: The half-width of the 95 % interval of a share in a group of ``GROUP`` records; None if not known.
        remedy: The setting with which a count of ``ASKED`` records is within 10 %.
        fitted: Whether ``privsql fit`` makes answers more precise.
        asked: Whether any protected value has ``ASKED`` records, as far as that is no secret.
        usual: The relative error of a count of ``ASKED`` records of the most frequent protected value; None if it is
            ``error``.
    """

    value: str | None
    error: float
    few: float
    share: float | None
    remedy: str
    fitted: bool = False
    asked: bool = True
    usual: float | None = None

    @property
    def is_useless(self) -> bool:
        """Return whether a count of the most frequent value is off by more than a fifth, in a table that has such."""
        return self.asked and (self.error if self.usual is None else self.usual) > USELESS

    @property
    def text(self) -> str:
        """Return the errors in words.

        >>> Precision("yes", 0.05, 0.11, 0.02, "").text
        "of 'yes' a count of 500 is off by about 5%, one of 100 by 11%; a share in a group of 1,000 by 2.0 points (95%)"
        """
        of = f"of {self.value!r} " if self.value is not None else ""
        without = "without fit, " if self.fitted else ""
        text = f"{without}{of}a count of {ASKED} is off by about {_percent(self.error)}, one of {FEW_ASKED} by "
        text += _percent(self.few)
        if self.share is not None and self.share <= 1:
            text += f"; a share in a group of {GROUP:,} by {100 * self.share:.1f} points (95%)"
        return text

    @property
    def warning(self) -> str:
        """Return why a release with these errors is useless, and what would do."""
        return f"USELESS: {self.text}. {self.remedy}"


def _percent(error: float) -> str:
    return f"{error:.0%}" if error < 10 else "more than 1,000%"
