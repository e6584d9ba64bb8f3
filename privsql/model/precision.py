"""The precision of counts from a release, as formulas predict it before anything is fitted or measured."""

from __future__ import annotations

from dataclasses import dataclass

ASKED, FEW_ASKED = 500, 100  # errors are predicted for counts of so many records
GROUP = 1000  # the error of a share is predicted for a group of so many records
TWO_SIDED = 1.96  # half-width of a 95 % interval, in standard errors
USELESS = 0.2  # a release is useless if counts of ``ASKED`` records have a larger relative error
WANTED = 0.1  # relative error with the setting that ``remedy`` names


@dataclass(frozen=True)
class Precision:
    """The predicted errors of counts of one protected value, usually the least precise one.

    Attributes:
        value: The value; None if all values have the same errors.
        error: The relative standard error of a count of 500 records.
        few: The relative standard error of a count of 100 records.
        share: The half-width of the 95 % interval of a share in a group of 1,000 records; None if not known.
        remedy: A sentence with a setting that brings the error of a count of 500 records to 10 %.
        fitted: Whether ``privsql fit`` makes answers more precise.
        asked: Whether any protected value has 500 records; True if that is secret.
        usual: The relative error of a count of 500 records of the most frequent protected value; None if it is the same
            as ``error``.
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
        """Return whether counts of the most frequent protected value are off by more than a fifth.

        It is False if no protected value has 500 records.
        """
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
        """Return a warning that a release with these errors is useless, with the remedy."""
        return f"USELESS: {self.text}. {self.remedy}"


def _percent(error: float) -> str:
    return f"{error:.0%}" if error < 10 else "more than 1,000%"
