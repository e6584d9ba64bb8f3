"""Choice of records: who knows how one record of each person was chosen weighs the values that the person may have.

If the record with the smallest hash of K is taken and anybody can compute the hash h (of 0..1) of a person's record
with value x, then the probability that x is the published value is proportional to (1 - h)^(K - 1) times what is
published of x. With a secret key no hash can be computed: every record is as likely as the others, and nothing is
learnt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.attacks.finding import Finding
from privsql.engine.sqlfiles import Holes, column, fill, same, temp
from privsql.engine.texts import BITS, injective_text

if TYPE_CHECKING:
    from privsql.attacks.block import Floats, Ints
    from privsql.attacks.scene import Scene

NAME = "choice of records"
KNOWS = "the person's name in the source and number of records, and how one of them is chosen, but for the key"
MOST = 20_000  # about as many records are attacked
DEVIATIONS = 6  # more guesses are right than by chance: one false alarm in a billion


def attack(scene: Scene) -> list[Finding]:
    """The best guesses for persons with several records who are alone with their quasi-identifiers."""
    scene.db.put("pairs", _pairs(scene))
    roles = scene.roles
    published = [*_texts(scene, "a", roles.qi_keys), *_texts(scene, "v", roles.sa_keys)]
    person = injective_text(column("person", "c"), "VARCHAR")
    holes: Holes = {
        "pairs": temp("pairs"),
        "rows": temp("a_rows"),
        "values": temp("a_values"),
        "chosen": temp("chosen_people"),
        "people": temp("people"),
        "same_qi": same("a", "c", roles.qi_keys),
        "same_value": same("c", "v", roles.sa_keys),
        "hash": scene.db.hashed([exp.Literal.string(""), person, *published, exp.Literal.string("1")]),
    }
    found = scene.db.arrow(fill("attack/chosen", holes))
    scene.db.drop("pairs")
    pos, times = (found[name].to_numpy().astype(np.int64) for name in ("pos", "times"))
    prior = found["prior"].to_numpy().astype(np.float64)
    hashes = found["hash"].to_numpy().astype(np.float64) / 2.0**BITS
    return [finding(pos, prior, weighed(pos, prior, hashes, times), found["is_true"].to_numpy(zero_copy_only=False))]


def weighed(pos: Ints, prior: Floats, hashes: Floats, times: Ints) -> Floats:
    """Return the posterior of every value of every person (by ``pos``) where the smallest hash was taken."""
    weights = prior * (1 - hashes) ** (times - 1)
    _, person = np.unique(pos, return_inverse=True)
    return np.asarray(weights / np.bincount(person, weights)[person])


def finding(pos: Ints, prior: Floats, posterior: Floats, true: np.ndarray) -> Finding:
    """Return how often the likeliest value is right, beside how often it would be if nothing were learnt."""
    order = np.lexsort((posterior, pos))
    best = order[np.append(np.diff(pos[order]) > 0, True)] if len(pos) else order
    attacked, right, chance = len(best), float(true[best].sum()), float(prior[best].sum())
    spread = float((prior[best] * (1 - prior[best])).sum()) ** 0.5
    leaks = attacked > 0 and right - chance > DEVIATIONS * max(spread, 1.0)
    notes = (f"{right / attacked:.1%} of the guesses are right, {chance / attacked:.1%} by chance",) if attacked else ()
    if not attacked:
        return Finding(NAME, KNOWS, promised=True, unit="persons", applies=False)
    return Finding(
        NAME,
        KNOWS,
        promised=True,
        attacked=attacked,
        unit="persons",
        mean=chance / attacked,
        highest=float(prior[best].max()),
        right=right / attacked,
        leaks=leaks,
        notes=notes,
    )


def _texts(scene: Scene, table: str, keys: tuple[str, ...]) -> list[exp.Expr]:
    fields = scene.roles.quasi_identifiers if table == "a" else scene.roles.sensitive
    return [injective_text(column(key, table), field.type) for key, field in zip(keys, fields, strict=True)]


def _pairs(scene: Scene) -> pa.Table:
    """Return (pos, code, prior) of the values of records that are alone with their quasi-identifiers."""
    alone = np.bincount(scene.keys)[scene.keys] == 1
    attacked = np.flatnonzero(alone)
    wanted = np.zeros(len(alone), dtype=bool)
    wanted[attacked[:: max(1, len(attacked) // MOST)]] = True
    parts = []
    for block in scene.blocks():
        prior = block.of_values(np.broadcast_to(block.prior, block.shape))
        b, r, t = prior.shape
        rows, codes = (np.broadcast_to(x, (b, r, t)).ravel() for x in (block.rows[:, :, None], block.codes[:, None, :]))
        chosen = wanted[rows]
        parts.append(np.stack([rows[chosen], codes[chosen], prior.ravel()[chosen]]))
    found = np.concatenate(parts, axis=1) if parts else np.zeros((3, 0))
    _, first = np.unique(found[:2], axis=1, return_index=True)  # a value that is listed twice is one
    found = found[:, first]
    columns = {name: found[i].astype(np.int64) for i, name in enumerate(("pos", "code"))}
    return pa.table({**columns, "prior": found[2]})
