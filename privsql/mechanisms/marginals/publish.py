"""Count the tables of a contingency release with noise, and derive weighted rows that fit them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np

from privsql.dp_random import TableNoise, opendp_version, table_noise_for
from privsql.errors import InfeasibleError
from privsql.exact import fraction_text
from privsql.mechanisms.dp.joint_model import Model
from privsql.mechanisms.dp.noisy_tables import Clique, Ints, NoisyTable, Reals, flat_cells, measure_table, sum_cells
from privsql.mechanisms.dp.sum_errors import rehearse_sums
from privsql.mechanisms.dp.tables import write_noisy_tables, write_release_table
from privsql.mechanisms.marginals.domains import ADDED, UNITS, ContingencyColumn, read_coded_cells, read_columns
from privsql.mechanisms.marginals.parameters import Contingency, MarginalFacts
from privsql.mechanisms.marginals.plan import PRICES, Rounds, Rule, counted_total, make_rule, square_root
from privsql.mechanisms.marginals.tables import (
    DOMAINS,
    SummedTable,
    list_facts,
    list_points,
    mean_total_variation,
    write_rows,
    write_sums,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.model.records import Records

# Measuring ------------------------------------------------------------------------------------------------------------
# Only this part reads true counts, and adds noise to all of them.
#
# Adding or removing one record changes one cell of each table by one. So noise of scale 1/e spends epsilon e, and all
# tables and choices together spend the release's epsilon. A choice scores each candidate table by the records that the
# tables so far predict wrongly: the L1 distance between its true counts and the model's rounded ones. Scores are whole
# numbers, and one record changes each by at most 1. It may raise some scores and lower others, so a choice spends twice
# what it would if all scores moved the same way.

WORTH = Fraction(1, 2)  # a cell counts for its table's score by what exceeds this share of a count's mean noise


def measure_marginals(codes: Ints, records: Ints, rule: Rule, noise: TableNoise) -> list[NoisyTable]:
    """Count all tables of a source with noise, as the public rule says.

    The result is epsilon- or (epsilon, delta)-differentially private for one record added or removed.

    Args:
        codes: The n distinct combinations of values in the source, as codes of the d columns (n, d).
        records: The number of records with each combination (n,).
        rule: The rule that decides which tables are counted, and with which budget.
        noise: The generator of noise and of private choices.

    Returns:
        The noisy tables, in the order in which they were counted.
    """

    def count_exactly(clique: Clique) -> Ints:
        return sum_cells(codes, records, clique, rule.sizes).astype(np.int64)

    def measure(clique: Clique, spent: Fraction, choice: Fraction | None) -> NoisyTable:
        return measure_table(clique, count_exactly(clique), spent, noise, choice, rule.law)

    tables = [measure(*one) for one in rule.first_table()]
    tables += [measure(*one) for one in rule.fixed_tables(counted_total(tables))]
    rest = rule.remaining_tables(tables)
    if not isinstance(rest, Rounds):
        return tables + [measure(*one) for one in rest]
    counts = {clique: count_exactly(clique) for clique in rest.cells}
    chosen: list[Clique] = []
    while affordable := rest.affordable_tables(chosen):
        # Score a table by the records that exceed WORTH of a count's noise, times a factor that falls with the root of
        # its price. A table with many cells is worth its noise if few of them hold most records, as where one column
        # determines another.
        model, scores = Model(tables, rule.sizes, rule.nested, mixed=False), []
        for one in affordable:
            far = np.abs(counts[one] - np.rint(model.fitted_table(one)).astype(np.int64))
            least = floor(WORTH * rule.law.mean_noise(rest.prices[one] - rest.choice))
            part = square_root(
                rest.unit * PRICES[0] / rest.prices[one]
            )  # at most 1, so that one record moves a score by 1
            scores.append(int(np.maximum(far - least, 0).sum()) * part.numerator // part.denominator)
        best = noise.choose_best(np.array(scores, dtype=np.int64), rest.choice, monotonic=False)
        chosen.append(affordable[best])
        tables.append(measure(*rest.due_tables(chosen)[-1]))
    return tables


def measure_sums(codes: Ints, records: Ints, units: Ints, rule: Rule, noise: TableNoise) -> list[SummedTable]:
    """Add up the measured columns with noise, in all tables of sums that the rule requires.

    Args:
        codes: The n distinct combinations of values in the source, as codes of the d columns (n, d).
        records: The number of records with each combination (n,).
        units: The value that each of these records has in each measured column, as ``clamp_to_units`` gives it (n,
            measured).
        rule: The rule that decides which sums are measured, and with which budget.
        noise: The generator of noise.
    """
    law, due, result = replace(rule.law, moved=UNITS), rule.due_sums(), []
    measured = list(dict.fromkeys(place for place, _, _ in due))
    for place, clique, spent in due:
        exact = sum_cells(codes, records * units[:, measured.index(place)], clique, rule.sizes).astype(np.int64)
        result.append(SummedTable(place, measure_table(clique, exact, spent, noise, law=law)))
    return result


# Rows -----------------------------------------------------------------------------------------------------------------
# Weighted rows let any SQL tool come close to a release's estimates. They are made from the published tables alone.

MOST = 100_000  # most weighted rows
STEPS, FIT = 200, 8  # most times that weights are scaled to a table: in total, and to each table
FARTHEST = 10.0  # most factor by which one step changes a weight
DECIMALS = 6  # of a weight, so that all machines compute the same one


def synthesize_rows(model: Model, draw: np.random.Generator) -> tuple[Ints, Reals]:
    """Make weighted rows whose counts agree with a fitted model, from published figures alone.

    Rows are drawn from the model. Their weights are then scaled to each estimated table in turn (raking).

    Returns:
        The codes of the R different rows in d columns, in order (R, d), and their weights (R,).
    """
    number = ceil(min(model.total, MOST))
    codes, times = np.unique(model.draw_records(number, draw), axis=0, return_counts=True)
    weights: Reals = times.astype(np.float64) * (model.total / max(number, 1))
    tables = model.believed_tables
    for _ in range(min(FIT, max(1, STEPS // len(tables)))):
        for clique, wanted in tables.items():
            flat = flat_cells(codes, clique, model.sizes)
            now = np.bincount(flat, weights=weights, minlength=wanted.size)
            scale = np.divide(wanted.reshape(-1), now, out=np.ones(wanted.size), where=now > 0)
            weights = weights * np.clip(scale, 1 / FARTHEST, FARTHEST)[flat]
    whole = float(weights.sum()) if len(weights) else 1.0
    return codes, np.asarray(np.round(weights * (model.total / whole), DECIMALS), dtype=np.float64)


def show_codes(columns: Sequence[ContingencyColumn], codes: Ints, weights: Reals) -> tuple[Ints, Reals]:
    """Join rows that are published with equal values, because columns that are no text show unlisted values as NULL.

    Unlisted values are those outside of a column's domain, which have one code together. A column of text has a text
    for them. In any other column, their code is replaced by that of NULL.

    Args:
        columns: The d columns.
        codes: The codes of the R rows (R, d).
        weights: The weights of the rows (R,).

    Returns:
        The codes of the different rows, and the sums of their weights.
    """
    sizes = np.array([len(one) for one in columns])
    hidden = np.array([one.field.type != "VARCHAR" for one in columns]) & (codes == sizes - ADDED)
    shown, place = np.unique(codes + hidden, axis=0, return_inverse=True)
    return shown, np.bincount(place.reshape(-1), weights, len(shown)).astype(np.float64)


def publish_marginals(db: Relations, source: Records, params: Contingency, key: Key) -> MarginalFacts:
    """Publish a release of noisy marginals into database ``release``, and return its facts for the manifest.

    Raises:
        InfeasibleError: The noise of a column's own table exceeds the number of records; ``allow_empty`` permits that.
    """
    columns = read_columns(db, source, params)
    rule = make_rule(columns, params)
    noise = table_noise_for(key, rule.law)
    codes, records, units = read_coded_cells(db, source, columns)
    measured = measure_marginals(codes, records, rule, noise)
    sums = measure_sums(codes, records, units, rule, noise)
    # If there are few records, the noisy total is mostly noise, too; so the noise is compared with it as it is.
    error = rule.mean_noise((one.columns, one.budget) for one in measured)
    if error > rule.noisy_total(measured) and not params.allow_empty:
        most, values = max(zip(rule.sizes, rule.names, strict=True))
        raise InfeasibleError(
            f"the tables would be noise: a column's own table errs by about {float(error):,.0f} records on average, "
            f"too many for the records that there are; {values} has {most:,} values. A larger epsilon, fewer values "
            f"or wider bins{rule.advice} would help, and mechanism.allow_empty = true publishes it anyway; epsilon "
            f"{fraction_text(params.epsilon)} was drawn and is spent"
        )
    model = Model(measured, rule.sizes, rule.nested)
    rows, weights = synthesize_rows(model, key.random_generator("marginals", fraction_text(params.epsilon)))
    rows, weights = show_codes(columns, rows, weights)
    write_noisy_tables(db, measured, rule.names)
    write_sums(db, sums, rule.names)
    write_release_table(db, DOMAINS, list_points(columns))
    write_rows(db, source.roles.sensitive, columns, rows, weights)
    return MarginalFacts(
        **list_facts(rule, measured, model),
        synthetic=len(weights),
        distance=round(mean_total_variation(model, rows, weights), 6),
        errors=rehearse_sums(model),
        noise=noise.origin,
        opendp=opendp_version(),
    )
