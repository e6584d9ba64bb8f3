"""From a plan to the tables of a release: places are drawn, records and values written through SQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, fill, table, temp
from privsql.mechanisms.bucketize import beliefs, certain
from privsql.mechanisms.bucketize.assigning import names, write_counted, write_ranked, write_records, write_values
from privsql.mechanisms.bucketize.fakes import certainty, exclusion
from privsql.mechanisms.bucketize.fakes import law as fakes
from privsql.mechanisms.bucketize.fakes.lists import times_listed
from privsql.mechanisms.bucketize.layout.arrange import arrange
from privsql.mechanisms.bucketize.layout.pieces import Singles
from privsql.mechanisms.bucketize.layout.runs import of_entries
from privsql.mechanisms.bucketize.planning.request import search
from privsql.mechanisms.bucketize.planning.suppress import spread
from privsql.mechanisms.bucketize.reconstruct import directions, listed
from privsql.mechanisms.bucketize.through import through

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.layout.pieces import Layout
    from privsql.mechanisms.bucketize.layout.runs import Runs
    from privsql.mechanisms.bucketize.model import Ints, Plan, Problem
    from privsql.mechanisms.bucketize.parameters import Bucketize
    from privsql.model.records import Records
    from privsql.noise import Key, Shuffler


PAIR, RECORD, LISTED, VALUE = 150, 5, 24, 1000  # bytes that are taken beside the engine for each of them


@dataclass(frozen=True)
class Dealt:
    """Where records lie, what their buckets list, and which fakes are listed beside them."""

    layout: Layout
    runs: Runs
    hidden: fakes.Hidden | None


@dataclass(frozen=True)
class Listing:
    """What the buckets list, and how values meet in them."""

    runs: Runs
    meetings: pa.Table


def publish(db: Relations, source: Records, asked: Bucketize, key: Key) -> dict[str, Any]:
    """Make ``qit``, ``st``, ``privsql_values`` and ``privsql_channel`` in database ``release``; returns the facts."""
    found, problem = search(db, source, asked)
    together = (tuple((one.members, str(one.threshold)) for one in problem.bounds),) if problem.bounds else ()
    noise = key.stream("bucketize", found.setting.items, tuple(source.counts), tuple(source.labels), *together)
    roles = source.roles
    facts = (
        summary(found, problem, sum(source.counts))
        | {"layout": asked.composition}
        | stated_fakes(found, problem, asked)
    )
    made = dealt(found, problem, asked, noise)
    reserve(db, made.runs)
    values = names(db, roles)
    with ThreadPoolExecutor(1) as beside:  # numpy and the engine use different cores
        counted = beside.submit(_listed, db, roles, made, values)
        if source.order == "portable":
            write_ranked(db, source, made.layout, key)
        else:
            bids = spread(made.layout.places(noise), problem.counts, np.array(source.counts, dtype=np.int64), noise)
            write_records(db, source, bids, ordered=not key.fresh)
        listing = counted.result()
    fake: tuple[Ints, Ints] = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    if made.hidden is not None:
        codes, more = _admissible(db, roles, asked, (found, made.hidden, listing), noise)
        facts |= {**more, "certainty": facts["certainty"] | more["certainty"]}
        listing = _beside(listing, made.hidden, codes, found, asked.fake_values)
        fake = made.hidden.fake_bids, codes
        if db.keeps_order:
            write_values(db, roles, listing.runs, values)
    if not db.keeps_order:
        write_counted(db, roles, fake)
    _write_channel(db, roles, listing, problem)
    facts |= directions(listing.meetings, facts)
    db.view("published", exp.select(*roles.sa_in(), *roles.by_sa.read("bid", "count")).from_(table("st", "release")))
    facts |= beliefs.measured(db, temp("published"), temp("domain"), facts, roles).as_facts()
    if certain.reached(facts) and not certain.free(asked):
        excused = certain.written(asked, problem.labels, problem.thresholds)
        values = certain.listed(roles, table("privsql_values", "release"))
        certain.refuse(certain.certain(db, temp("published"), values, facts["setting"], roles, excused))
    return facts


def dealt(found: Plan, problem: Problem, asked: Bucketize, noise: Shuffler) -> Dealt:
    """Draw the buckets of all records, and the fakes."""
    hidden: fakes.Hidden | None = None
    if asked.fake_values:
        hidden = fakes.hidden(found, problem.counts, asked.fake_values, asked.composition, noise)
        layout: Layout = Singles(hidden.bids, problem.counts)
    else:
        layout = arrange(found, asked.composition, noise, problem.trees)
    return Dealt(layout, layout.runs(found.setting), hidden)


def reserve(db: Relations, runs: Runs) -> None:
    """Leave memory to what is done beside the engine; ``EngineError`` if the limit is less than that takes."""
    pairs, records = runs.most_meetings, int(runs.listed.sum())
    told = sum(one.codes.size for one in runs.classes)  # of runs; as many as records where each bucket is its own
    size = PAIR * pairs + RECORD * records + LISTED * told + VALUE * runs.values
    db.reserve(size, f"a release of {runs.values:,} values, of which up to {pairs:,} pairs meet,")


def _listed(db: Relations, roles: Roles, made: Dealt, values: pa.Table) -> Listing:
    """What the buckets list without fakes, and ST, if that is all."""
    if made.hidden is None and db.keeps_order:
        write_values(db, roles, made.runs, values)
    return Listing(made.runs, made.runs.meetings())


def _write_channel(db: Relations, roles: Roles, listing: Listing, problem: Problem) -> None:
    """The values and the channel."""
    db.put("fractions", _fractions(listing.runs, problem))
    holes: Holes = {"fractions": temp("fractions"), "domain": temp("domain"), "sa": roles.sa_out("d")}
    holes |= roles.by_sa.names("code", "records", "numerator", "denominator")
    db.make("privsql_values", fill("bucketize/values", holes), into="release")
    db.put("meetings", listing.meetings)
    db.make("privsql_channel", fill("bucketize/channel", {"meetings": temp("meetings")}), into="release")
    db.drop("fractions", "meetings")


def _beside(real: Listing, hidden: fakes.Hidden, codes: Ints, found: Plan, sigma: int) -> Listing:
    """What buckets list with fakes ``codes``."""
    bids, values = real.runs.pairs
    every = np.concatenate((bids, hidden.fake_bids)), np.concatenate((values, codes))
    runs = of_entries(*every, real.runs.values, found.setting.items, sigma)
    return Listing(runs, runs.meetings())


def _admissible(
    db: Relations,
    roles: Roles,
    asked: Bucketize,
    made: tuple[Plan, fakes.Hidden, Listing],
    noise: Shuffler,
) -> tuple[Ints, dict[str, Any]]:
    """The fakes, exchanged where negative associations exclude them, and what is stated of them."""
    found, hidden, real = made
    if not asked.exclude_negative:
        anywhere = certainty.rounded_up(hidden.highest)
        return hidden.fake_codes, {"weak_fakes": 0, "certainty": {"anywhere": anywhere}}
    setting = {str(size): buckets for size, buckets in found.setting.items}
    plainly = through(listed(real.meetings, setting), {})
    db.put("composition", real.runs.table().read_all())
    known = exclusion.excluded(db, roles, setting, plainly.channel)
    db.drop("composition")
    after = exclusion.avoided(real.runs, hidden.fake_bids, hidden.fake_codes, known, noise)
    exclusion.refuse_weak(after.weak, asked.no_admissible_fake)
    return after.codes, {"weak_fakes": after.weak, "excluded_real": after.certain, "certainty": {}}


def summary(found: Plan, problem: Problem, records: int) -> dict[str, Any]:
    """The facts of a plan for manifest and output; ``records`` of the source."""
    left_out = records - problem.records
    return {
        "loss": found.loss,
        "mse": found.mse,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "proof": found.proof,
        "setting": {str(size): buckets for size, buckets in found.setting.items},
        **({"left_out": left_out} if left_out else {}),
        **({"bounds": [one.as_fact() for one in problem.bounds]} if problem.bounds else {}),
    }


def stated_fakes(found: Plan, problem: Problem, asked: Bucketize) -> dict[str, Any]:
    """What is stated of the fakes before they are drawn."""
    if not asked.fake_values:
        return {}
    times = times_listed(problem.counts, found.setting.items, asked.fake_values).sum(axis=1)
    return certainty.stated(problem.counts, times, problem.labels, found.setting, asked.fake_values)


def _fractions(runs: Runs, problem: Problem) -> pa.Table:
    values = problem.thresholds
    return pa.table(
        {
            "code": np.arange(len(values)),
            "records": runs.listed,
            "numerator": [str(value.numerator) for value in values],
            "denominator": [str(value.denominator) for value in values],
        }
    )
