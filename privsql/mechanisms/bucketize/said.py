"""A bucketized release for people: what it promises in sentences, and its buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privsql.model.told import LEARNT, SEVERAL, Structure, Words
from privsql.model.told import structure as part

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.bucketize.parameters import Bucketize
    from privsql.model.manifest import Manifest

MADE = (
    "Records are put together in buckets. Of every bucket it is published which records are in it and which sensitive "
    "values they have, but not which record has which value: within the bucket every order is equally likely."
)
BOUND = (
    "Somebody who knows everybody in the table, all that is published of them and how the release was made can believe "
    "of nobody that they have a value with a probability above the bound of that value."
)
KNOWN = "Against people who know the sensitive values of others in the same bucket."
PRESENT = "That somebody is in the table at all is not hidden."


def words(asked: Bucketize) -> Words:
    """F'-privacy, in sentences."""
    absent = ("The bounds are for those who are in the release; who was left out is assumed to be unknown.",)
    groups = ("Where a group of values has a bound of its own, it holds for the sum of the beliefs in them.",)
    fakes = (f"Every bucket lists {asked.fake_values} values besides that nobody in it has, not marked as such.",)
    one_by_one = "For beliefs in one of several values together: they add up, but for groups with bounds of their own."
    promised = (
        MADE,
        BOUND,
        *(groups if asked.is_bounding else ()),
        *(fakes if asked.fake_values else ()),
        *(absent if asked.absence == "unobservable" else ()),
    )
    return Words(promised, (KNOWN, LEARNT, SEVERAL, one_by_one, PRESENT))


def structure(_: Relations, manifest: Manifest) -> list[Structure]:
    """Buckets by size, as ``checks`` compared them with the tables."""
    setting = sorted((int(size), int(number)) for size, number in manifest.facts["setting"].items())
    rows: list[tuple[Any, ...]] = [(f"{size:,} records", number, size * number) for size, number in setting]
    buckets, records = sum(number for _, number in setting), sum(size * number for size, number in setting)
    many = f"{buckets:,} buckets" if buckets != 1 else "one bucket"
    said = f"{records:,} records lie in {many}. The fewer records a bucket has, the better are answers."
    return [part("Buckets by size", said, ("size of bucket", "buckets", "records"), rows, 2)]
