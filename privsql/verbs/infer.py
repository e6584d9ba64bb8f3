"""``infer``: what two noisy counts of the source still tell of the people in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql import dpnoise, plot
from privsql.answers import cuts
from privsql.answers.parse import read
from privsql.attacks import differential
from privsql.calls import number, whole
from privsql.engine.progress import running
from privsql.engine.sqlfiles import DIALECT, render, table
from privsql.errors import UsageError
from privsql.mechanisms.contract import Table
from privsql.mechanisms.registry import of
from privsql.noise import seed_key
from privsql.releases.ledger.choosing import chosen_for
from privsql.releases.ledger.place import path_of
from privsql.releases.ledger.wish import Wish
from privsql.source.binning import coarser
from privsql.source.given import specified
from privsql.source.preparing import prepare
from privsql.verbs.room import workroom

if TYPE_CHECKING:
    from decimal import Decimal
    from fractions import Fraction
    from typing import Unpack

    from privsql.attacks.block import Floats
    from privsql.attacks.differential import Inference
    from privsql.engine.progress import Options, Running
    from privsql.source.given import Given
    from privsql.source.spec import Spec

DRAWS = 20_000


@dataclass(frozen=True)
class Inferred:
    """Theorem 2 beside its simulation: the query that was asked, among queries of other sizes with the same ratio."""

    rows: list[Inference]
    epsilon: float
    condition: str
    sensitive: str
    draws: int

    @property
    def asked(self) -> Inference:
        """The row of the query."""
        return next(row for row in self.rows if row.asked)

    def plot(self) -> Any:
        """A picture, of altair: noisy ratios over the size of the query, simulated and in theory."""
        return plot.shown(plot.inference, self)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        head = {"epsilon": self.epsilon, "condition": self.condition, "sensitive_condition": self.sensitive}
        return {**head, "draws": self.draws, "sizes": [row.as_json() for row in self.rows]}


def infer(
    source: Given,
    condition: str,
    sensitive: str,
    *,
    epsilon: float | Fraction | Decimal | str = 0.1,
    draws: int = DRAWS,
    seed: int | None = None,
    **how: Unpack[Running],
) -> Inferred:
    """What an adversary infers from two differentially private counts of the source, each answered with ``epsilon``.

    ``source``: its specification; ``condition``: SQL over quasi-identifiers; ``sensitive``: SQL that is asked of those
    who meet it. ``seed`` repeats a simulation, with Laplace noise in doubles; without one the noise is OpenDP's, and
    drawn afresh. Raises ``UsageError`` for conditions that are not supported or that nobody meets.
    """
    each = number(epsilon, "--epsilon")
    if each <= 0:
        raise UsageError(f"--epsilon {epsilon} must be above 0")
    chosen = None if seed is None else whole(seed, "seed", None)
    with running(how, infer) as options:
        spec, number_of = specified(source), whole(draws, "draws")
        x, y = _counted(spec, condition, sensitive, options)
    scale = 1 / float(each)
    noise = _noise(scale, number_of, chosen)
    return Inferred(differential.infer(x, y, scale, noise), float(each), condition, sensitive, number_of)


def _noise(scale: float, draws: int, seed: int | None) -> tuple[Floats, Floats]:
    """Laplace noise of both counts, (draws,) each."""
    if seed is None:
        return dpnoise.laplace(scale, draws), dpnoise.laplace(scale, draws)
    key = seed_key(seed)
    first, second = (key.stream("infer", count).laplace(0.0, scale, draws) for count in ("x", "y"))
    return first, second


def _counted(spec: Spec, condition: str, sensitive: str, options: Options) -> tuple[int, int]:
    """How many records meet a condition, and how many of them the sensitive one, too."""
    if not isinstance(of(spec.mechanism.kind).shape, Table):
        raise UsageError("the conditions of differential inference are on quasi-identifiers; there are none")
    with workroom(options) as db:
        choice = chosen_for(db, Wish(spec, path_of(spec)), publishing=False)
        source = prepare(db, spec.source, spec.columns, choice=choice)
        source.sort()
        source.named(spec.name)
        asked = [_count(spec.name, part) for part in ([condition], [condition, sensitive])]
        own = source.roles.quasi_identifiers
        coarse = coarser(own, spec.columns)
        for sql in asked:
            cuts.refuse(read(sql, source.roles, spec.name), coarse["bins"], coarse["groups"], own)
        x, y = (int(db.ask(sql)[0][0]) for sql in asked)
    if not x:
        raise UsageError(f"no record meets {condition!r}; choose a condition that some meet")
    return x, y


def _count(name: str, conditions: list[str]) -> str:
    """COUNT(*) of the records that meet all conditions, as text."""
    parts = []
    for text in conditions:
        try:
            parts.append(exp.paren(sqlglot.parse_one(text, dialect=DIALECT, into=exp.Condition)))
        except SqlglotError as error:
            raise UsageError(f"condition {text!r} can't be parsed: {str(error).splitlines()[0]}") from error
    counted = exp.select(exp.Count(this=exp.Star())).from_(table(name))
    return render(counted.where(*parts))
