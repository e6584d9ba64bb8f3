"""The parts that all differentially private mechanisms share, and how synthetic records are dealt out."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from math import exp as e_to
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql import dp_random
from privsql.answers import answer
from privsql.attacks.scene import Finding
from privsql.dp_random import CONCENTRATED, PURE, NoiseLaw, concentrated_rho
from privsql.engine.sqlfiles import BITS, Holes, all_rows, column, fill, temp_table
from privsql.errors import UsageError
from privsql.exact import fraction_text
from privsql.mechanisms import contract
from privsql.model import manifest
from privsql.model.manifest import ReleasePromises, VerifiedBound
from privsql.model.packing import source_changed_error
from privsql.model.parameters import Facts, Parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.answers.aggregates import Statement
    from privsql.answers.names import Lookups
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.contract import Alternatives
    from privsql.model.manifest import Check, CheckedRelease, Manifest
    from privsql.model.records import Records

    Ints = NDArray[np.integer[Any]]

P = TypeVar("P", bound=Parameters)

# Dealing records out --------------------------------------------------------------------------------------------------
# The portable order: records take ranks by keyed hashes of what they hold, on any engine, however a table is split.
#
# Every record has h, 60 bits of SHA-256 of a subkey and an injective text of all its columns (``Records.bound``), and a
# copy number: 0, 1, .. among the records of one h, equal ones or not. Its place on a line is
#
#     u = first 60 bits of SHA-256(subkey | tag | h | copy)
#
# and its rank is the number of records of its part (of its value, or its group) that stand before it; ties, of which
# there are n^2/2^61 on average, fall to h. The pairs (h, copy) are different, so for a pseudo-random function the u are
# independent and uniform, those of equal records too: every order of a part's records is equally likely. That is what
# the stream of the key gives (``layout.pieces``), so the posterior of an adversary who knows the algorithm is the same,
# and the proof of the bound carries over. Which of equal records has which copy number is nothing that a release tells.
#
# All of it depends on contents alone: whichever task reads a record, and however often, it gets the same rank. No
# window goes over a whole part: the line is cut into stretches of about ``UNIT`` records, in which they are ordered,
# and what a layout says of ranks (``Segments``) is cut along with them.

UNIT = 1000  # records in a stretch, more or less: few pieces meet in one, and no task is long
PURPOSE = "places"


@dataclass(frozen=True)
class Segments:
    """Ranks ``lo`` .. ``hi`` - 1 of a ``part`` are given ``number``, ``number`` + ``step``, ..; arrays (p,).

    By part and ``lo``, without overlaps. Ranks in none of them are left out.
    """

    part: Ints
    lo: Ints
    hi: Ints
    number: Ints
    step: int

    @property
    def has_only_singles(self) -> bool:
        """Return whether each is for one record."""
        return bool((self.hi - self.lo == 1).all())


@dataclass(frozen=True)
class RecordParts:
    """Records (k,) of every part; ``of``: (part, and a column ``by`` of the records), None where that is the part."""

    records: Ints
    by: str = "code"
    of: pa.Table | None = None

    def as_table(self) -> pa.Table:
        """(part, ``by``, width): the width of a stretch."""
        stretches = np.maximum(1, self.records // UNIT)
        bits = np.ceil(np.log2(stretches)).astype(np.int64)
        widths = np.left_shift(np.int64(1), BITS - bits)
        parts_table = self.of or pa.table({"part": np.arange(len(widths)), self.by: np.arange(len(widths))})
        return parts_table.append_column("width", pa.array(widths[parts_table["part"].to_numpy()]))


class RankAssignment:
    """The records of ``source``, ranked; what segments say of their ranks."""

    def __init__(
        self, db: Relations, source: Records, key: Key, parts: RecordParts, columns: Sequence[str] | None = None
    ) -> None:
        """``key``: bound to the records, which lie in relation ``hashed``; ``columns``: what is wanted of them.

        By default the quasi-identifiers, and the number ``pos`` where there is one. Raises ``GuaranteeError`` if they
        are not the records that were counted.
        """
        self._db, self._source = db, source
        wanted = [*(columns or source.roles.qi_keys), *(["pos"] if source.has_ids else [])]
        db.register_arrow("secret", key.word(PURPOSE))
        db.create_table("twice", fill("portable/twice", {"hashed": temp_table("hashed")}))
        order = [column("code", "r"), *source.roles.qi_columns("r")]
        holes: Holes = {"hashed": temp_table("hashed"), "twice": temp_table("twice"), "order": order}
        copies = fill("portable/copies", holes)
        db.register_arrow("parts", parts.as_table())
        holes = {
            "copies": copies.subquery(),
            "parts": temp_table("parts"),
            "secret": temp_table("secret"),
            "columns": [column(name, "r") for name in wanted],
            "hash": self.make_hash("place"),
            "same_part": column(parts.by, "r").eq(column(parts.by, "s")),
        }
        db.create_table("drawn", fill("portable/drawn", holes), title="Ordering the records")
        db.drop("hashed", "twice", "parts")
        self._units = db.arrow(fill("portable/units", {"drawn": temp_table("drawn")}))
        counted = np.bincount(self._units["part"].to_numpy(), self._units["records"].to_numpy(), len(parts.records))
        if len(counted) != len(parts.records) or (counted != parts.records).any():
            raise source_changed_error()

    def make_hash(self, tag: str) -> exp.Expr:
        """60 bits for record r, independent of those under other tags; first copies have a tag of their own."""
        first = exp.Case().when(column("copy", "r").eq(exp.Literal.number(0)), exp.Literal.string(tag))
        texts = [exp.cast(column(name, "r"), "VARCHAR") for name in ("h", "copy")]
        return self._db.hashed([column("word", "k"), first.else_(exp.Literal.string(f"{tag} of a copy")), *texts])

    def query_assigned(self, segments: Segments, columns: Sequence[exp.Expr]) -> exp.Query:
        """``columns`` (of r, or a ``make_hash``) of every record whose rank is in a segment, and its ``number``."""
        self._db.register_arrow("pieces", cut_segments(segments, self._units))
        rank, lo, hi = column("rank", "r"), column("lo", "p"), column("hi", "p")
        within = (
            rank.eq(lo) if segments.has_only_singles else exp.and_(exp.GTE(this=rank, expression=lo), rank.copy() < hi)
        )
        holes: Holes = {
            "drawn": temp_table("drawn"),
            "pieces": temp_table("pieces"),
            "columns": columns,
            "meets": within,
        }
        holes["secret"] = temp_table("secret")
        return fill("portable/dealt", holes)

    def read_numbers(self, assigned: exp.Query) -> NDArray[np.int64]:
        """Return the number of every named record in canonical order (n,); -1 for records that are left out."""
        numbered = self._db.arrow(assigned)
        every = np.full(self._source.records, -1, dtype=np.int64)
        every[numbered["pos"].to_numpy()] = numbered["number"].to_numpy()
        return every

    def drop_relations(self) -> None:
        """Forget the relations."""
        self._db.drop("secret", "drawn", "pieces")


def cut_segments(segments: Segments, units: pa.Table) -> pa.Table:
    """(part, bin, lo, hi, number, step): the segments cut at the borders of units (part, bin, records).

    Ranks count from the first of a part in ``segments``, from the first of a unit in what is returned.
    """
    unit_columns: Mapping[str, Ints] = {name: units[name].to_numpy() for name in units.column_names}
    ends = np.cumsum(unit_columns["records"])
    begins = ends - unit_columns["records"]
    of_parts = begins[np.searchsorted(unit_columns["part"], segments.part)]  # a line of all records, part by part
    lo, hi = segments.lo + of_parts, segments.hi + of_parts
    borders = np.union1d(lo, begins)
    segment = np.searchsorted(lo, borders, side="right") - 1
    inside = (segment >= 0) & (borders < hi[segment])
    borders, segment = borders[inside], segment[inside]
    unit = np.searchsorted(begins, borders, side="right") - 1
    until = np.minimum(hi[segment], ends[unit])
    number = segments.number[segment] + segments.step * (borders - lo[segment])
    return pa.table(
        {
            "part": unit_columns["part"][unit],
            "bin": unit_columns["bin"][unit],
            "lo": borders - begins[unit],
            "hi": until - begins[unit],
            "number": number,
            "step": np.full(len(borders), segments.step),
        }
    )


# Private --------------------------------------------------------------------------------------------------------------
# What every differentially private release has in common: what it promises and states, and how it is written.

RECORD = "Privacy is for one record, added or removed."
MEMBERSHIP = "membership"  # the adversary that the promise is about
DAMAGED = "the release is damaged (run privsql verify for details)"
NOT_PLANNED = contract.refuse_comparison(
    "what its algorithms tell depends on the noise that is drawn, not on a plan; compare with privsql compare"
)
NOISE = (
    "Records were counted, and random noise was added to every count. The release is made of these noisy counts alone. "
    "It holds no record of the source."
)
BOUND = (
    "One {unit} more or less changes the probability of any release by a factor of at most e^epsilon, whatever an "
    "attacker knows of all other {unit}s. Here epsilon = {epsilon}, and the factor is {factor:.3g}. An attacker who "
    "gives even odds that the {unit} is in the table becomes at most {most:.1%} sure."
)
SHARED = (
    " A secret key chose at most {records} records of each person, whatever they hold. Noise is scaled by {records}: "
    "each of them spends {share}."
)
UNLESS = (
    " That may fail with a probability of {delta:g} at most (delta). The noise is discrete Gaussian: the release is "
    "zero-concentrated differentially private with rho = {rho:.6g}."
)
MANY_RECORDS = "A person with several records has that many times epsilon, unless one record of each was taken."
NOT = (
    "The release shows what is true of people in general, and that says something about each person.",
    "The epsilons of several releases of the same records add up.",
    "The names of columns, and of values where these were taken from the records, are not protected by the noise.",
)
KNOWS = "every record but one, and asks whether that one is in the table; the belief if all noise points the same way"


def find_law(params: Any) -> NoiseLaw:
    """Return the law of the noise: zero-concentrated where there is a delta."""
    return CONCENTRATED if getattr(params, "delta", 0) else PURE


def person_budget(params: Any) -> Fraction:
    """Return what a person spends, with all records that were taken: epsilon, or the rho that (epsilon, delta) allows.

    Where one record of each person is taken at most, or persons are not known, it is that of a record.
    """
    return concentrated_rho(params.epsilon, params.delta) if find_law(params).concentrated else params.epsilon


def total_budget(params: Any) -> Fraction:
    """Return what all tables and choices together spend on a record: epsilon / k, or rho / k^2, of k a person.

    Neighbours that differ in k records are k steps apart: pure budgets add up, and the root of rho does (group privacy;
    Bun, Steinke, TCC 2016, proposition 27). Noise is so scaled by k.
    """
    records = max_records(params)
    return person_budget(params) / (records**2 if find_law(params).concentrated else records)


def max_records(params: Any) -> int:
    """Return how many records of a person are taken at most."""
    return int(getattr(params, "max_records", 1))


def protected_unit(params: Any) -> str:
    """Return what is protected, in words: a record, or a person with several."""
    records = max_records(params)
    return "record" if records == 1 else f"person, of at most {records} records,"


def format_epsilon(params: Any) -> str:
    """Differential privacy, for one record, or one person with several, added or removed."""
    more = f", delta = {float(params.delta):g}" if find_law(params).concentrated else ""
    persons = f" for persons of at most {max_records(params)} records" if max_records(params) > 1 else ""
    return f"epsilon = {fraction_text(params.epsilon)}{more}{persons}"


def explain_epsilon(params: Any) -> ReleasePromises:
    """Differential privacy, in sentences."""
    factor = e_to(float(params.epsilon))
    most = factor / (1 + factor)
    records = max_records(params)
    unit = "record" if records == 1 else "person"
    bound = BOUND.format(unit=unit, epsilon=fraction_text(params.epsilon), factor=factor, most=most)
    if find_law(params).concentrated:
        bound += UNLESS.format(delta=float(params.delta), rho=float(person_budget(params)))
    if records > 1:
        share = f"1/{records**2} of rho" if find_law(params).concentrated else f"1/{records} of epsilon"
        return ReleasePromises((NOISE, bound + SHARED.format(records=records, share=share)), NOT)
    return ReleasePromises((NOISE, bound), (MANY_RECORDS, *NOT))


def list_epsilon_bound(release: CheckedRelease[Any, Any]) -> list[VerifiedBound]:
    """Return the budget, all of which is spent."""
    params = release.params
    epsilon = fraction_text(params.epsilon)
    unit = f"one {protected_unit(params)}".removesuffix(",")
    result = [VerifiedBound(f"{unit}, added or removed: epsilon", epsilon, epsilon, belief=False)]
    if find_law(params).concentrated:
        delta, rho = fraction_text(params.delta), fraction_text(person_budget(params))
        result += [
            VerifiedBound(f"{unit}, added or removed: {name}", one, one, belief=False)
            for name, one in (("delta", delta), ("rho", rho))
        ]
    return result


def write_release_table(
    db: Relations, name: str, data: pa.Table, query: exp.Query | None = None, *, title: str = ""
) -> None:
    """Make a table of the release, of ``data`` as it lies or by a query over relation ``given``."""
    db.register_arrow("given", data)
    db.create_table(name, query or all_rows(temp_table("given")), into="release", title=title)
    db.drop("given")


OPENDP_CHECK = "made with a known version of OpenDP"


def unknown_opendp(release: CheckedRelease[Any, Any]) -> list[str]:
    """Return the version of OpenDP if it is newer than this version of privsql knows."""
    stated, here = (str(v).split(".") for v in (release.facts.opendp, dp_random.NEWEST))
    known = all(part.isdigit() for part in stated[:2]) and len(stated) >= 2
    newest = known and [*map(int, stated[:2])] <= [*map(int, here[:2])]
    return [] if newest else [f"OpenDP {release.facts.opendp}"]


def wrong_facts(release: CheckedRelease[Any, Any], recomputed: Mapping[str, Any]) -> list[str]:
    """Return facts that differ from ``recomputed`` ones, or name another origin of the noise than the manifest."""
    facts, manifest = release.facts, release.manifest
    expected = {**recomputed, "noise": "seed" if manifest.randomness == "seed" else "opendp"}
    pairs = [(name, getattr(facts, name), value) for name, value in expected.items()]
    wrong = [f"{name}: stated {stated}, found {value}" for name, stated, value in pairs if stated != value]
    wrong += [] if manifest.algorithm == release.params.algorithm else [f"algorithm {manifest.algorithm}"]
    stated = manifest.persons.taken if manifest.persons is not None else None
    most = max_records(release.params)
    return wrong if stated == most or (stated is None and most == 1) else [*wrong, f"persons: {manifest.persons}"]


BY_EPSILON: contract.Composition = contract.BudgetComposition(
    lambda params: params.epsilon,
    lambda params: getattr(params, "delta", Fraction(0)),
    lambda params: person_budget(params) if find_law(params).concentrated else None,
)


@dataclass(frozen=True, kw_only=True)
class PrivateMechanism(contract.Mechanism[P]):
    """A differentially private mechanism: what it promises and spends follows from epsilon."""

    composition: contract.Composition = BY_EPSILON
    variants: Mapping[str, contract.Mechanism[Any]] = field(default_factory=dict)
    algorithms: Callable[[Relations, Records, P], Alternatives] = NOT_PLANNED
    curve: Callable[[Relations, Records, P], contract.Curve] = contract.NO_CURVE
    long_checks: Callable[[CheckedRelease[P, Any]], list[Check]] = lambda _: []
    measured: Callable[[CheckedRelease[P, Any]], Facts] = lambda _: Facts()
    bounds: Callable[[CheckedRelease[P, Any]], list[VerifiedBound]] = list_epsilon_bound
    promise: Callable[[P], str] = format_epsilon
    words: Callable[[P], ReleasePromises] = explain_epsilon


@contextmanager
def refuse_damaged() -> Iterator[None]:
    """``UsageError`` for tables that can't be those of such a release."""
    try:
        yield
    except manifest.BROKEN as error:
        raise UsageError(f"{DAMAGED}: {error}") from error


class PrivateAnswers(answer.Answers):
    """An open private release: no bound of its answers is certain, and there are no buckets and no perturbation."""

    certain = frozenset()
    measures = frozenset()
    formulas: ClassVar[Mapping[str, str]]
    """By estimator, in words."""

    def __init__(self, db: Relations, manifest: Manifest, database: str | None = None) -> None:
        super().__init__(db, manifest)
        self._database = database

    def parse_sql(self, sql: str, lookups: Lookups) -> Statement:
        """Take the analyst's SQL apart; ``UsageError`` for all but numbers of records."""
        statement = super().parse_sql(sql, lookups)
        for one in statement.calls:
            if one.measure.kind != "count" and one.measure.column not in self.measured_columns:
                of = f"SUM and AVG are of {', '.join(self.measured_columns)}" if self.measured_columns else ""
                raise UsageError(f"{one.written}: {of or 'the release answers counts only; use COUNT(*)'}")
        return statement

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """Return the columns whose sums are published."""
        return ()

    @property
    def channel(self) -> None:
        """Return None: no sensitive value is published record by record."""


def make_membership_finding(params: Mapping[str, Any], exponents: Sequence[float], unit: str) -> Finding:
    """Return what the adversary ``MEMBERSHIP`` comes to believe, beside e^epsilon/(1 + e^epsilon), which is promised.

    ``exponents``: about every ``unit``, the logarithm of how much likelier the release is with the person's records in
    it; odds were even before.
    """
    epsilon, beliefs = Fraction(params["epsilon"]), [1 / (1 + e_to(-one)) for one in exponents]
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
