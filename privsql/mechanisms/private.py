"""What every differentially private release has in common: what it promises and states, and how it is written."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from math import exp as e_to
from typing import TYPE_CHECKING, Any

from privsql.attacks.finding import Finding
from privsql.engine.sqlfiles import all_rows, temp
from privsql.exact import text
from privsql.model.checks import Check, Promised

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    import pyarrow as pa
    from sqlglot import exp

    from privsql.dpnoise import CountNoise
    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

RECORD = "Privacy is for one record, added or removed."
MEMBERSHIP = "membership"  # the adversary that the promise is about
KNOWS = "every record but one, and asks whether that one is in the table; the belief if all noise points the same way"


def made_with(noise: CountNoise) -> dict[str, Any]:
    """The facts on where the noise is from."""
    return {"noise": noise.origin, "opendp": version("opendp")}


def promise(asked: Any) -> str:
    """Differential privacy, for one record added or removed."""
    return f"epsilon = {text(asked.epsilon)}"


def figure(facts: dict[str, Any]) -> tuple[str, str]:
    """Where the noise is from, as a person wants to see it."""
    return "noise", f"OpenDP {facts['opendp']}" if facts["noise"] == "opendp" else "seeded: NOT private, for tests only"


def bounds(epsilon: Fraction) -> list[Promised]:
    """The budget, all of which is spent."""
    return [Promised("one record, added or removed: epsilon", text(epsilon), text(epsilon))]


def write(db: Relations, name: str, data: pa.Table, query: exp.Query | None = None, *, title: str = "") -> None:
    """Make a table of the release, of ``data`` as it lies or by a query over relation ``given``."""
    db.put("given", data)
    db.make(name, query or all_rows(temp("given")), into="release", title=title)
    db.drop("given")


def known_opendp(manifest: Manifest) -> Check:
    """The check that a release was made with no newer OpenDP than the one that is installed."""
    return Check("made with a known version of OpenDP", partial(_unknown_opendp, manifest))


def _unknown_opendp(manifest: Manifest) -> list[str]:
    stated, here = (str(v).split(".") for v in (manifest.facts["opendp"], version("opendp")))
    known = all(part.isdigit() for part in stated[:2]) and len(stated) >= 2
    return [] if known and [*map(int, stated[:2])] <= [*map(int, here[:2])] else [f"OpenDP {manifest.facts['opendp']}"]


def wrong_noise(manifest: Manifest) -> list[str]:
    """Whether the facts name another origin of the noise than the manifest."""
    noise = "seed" if manifest.randomness == "seed" else "opendp"
    return [] if manifest.facts["noise"] == noise else [f"noise: stated {manifest.facts['noise']}, found {noise}"]


def membership(epsilon: Fraction, beliefs: Sequence[float], unit: str) -> Finding:
    """What the adversary ``MEMBERSHIP`` comes to believe, beside e^epsilon/(1 + e^epsilon), which is promised.

    ``beliefs``: that the record is in the table, given even odds before, about every ``unit``.
    """
    if not beliefs:
        return Finding(MEMBERSHIP, KNOWS, promised=True, attacked=0, unit=unit)
    most = 1 / (1 + e_to(-float(epsilon)))
    return Finding(
        MEMBERSHIP,
        KNOWS,
        promised=True,
        attacked=len(beliefs),
        unit=unit,
        mean=sum(beliefs) / len(beliefs),
        highest=max(beliefs),
        above=sum(one > most * (1 + 1e-12) for one in beliefs) / len(beliefs),
        baseline=0.5,
        notes=(f"epsilon {float(epsilon):g} promises at most {most:.1%}",),
    )
