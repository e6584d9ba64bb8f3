"""Compare what other algorithms and thresholds would give: ``plan --algorithms`` and ``plan --curve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from privsql.engine.database import options_from
from privsql.source.keywords import SpecLike, as_spec, split_keywords
from privsql.verbs.sessions import open_records

if TYPE_CHECKING:
    from privsql.mechanisms.base import Alternatives, Curve
    from privsql.source.typed_keywords import Planning


def algorithms(spec: SpecLike, **how: Unpack[Planning]) -> Alternatives:
    """Compare the algorithms of a mechanism before publishing, to choose one. Nothing is written.

    For each algorithm, the result predicts the loss of information and what attackers could learn.

    Args:
        spec: The path of a TOML file, plain data or a ``Spec``; or a source: a table in Python or the path of one.
        **how: Keywords for keys of the specification, such as ``sensitive``, ``qi`` and ``threshold``. They complete a
            source, or change a specification. Others say how the engine runs (``RunKeywords``).

    Raises:
        UsageError: The algorithms of this mechanism can't be compared.
    """
    keywords, rest = split_keywords(how)
    whole = as_spec(spec, keywords, verb="algorithms")
    with options_from(rest, "algorithms") as options, open_records(whole, options) as (db, records):
        return whole.implementation.compare_algorithms(db, records, whole.mechanism)


def curve(spec: SpecLike, **how: Unpack[Planning]) -> Curve:
    """Predict what the stated threshold, and some smaller and larger ones, would give. Nothing is written.

    For each threshold, the result has the promised bound on an attacker's belief, the belief of an attacker who trains
    a model on the release, and the error of counts.

    Args:
        spec: The path of a TOML file, plain data or a ``Spec``; or a source: a table in Python or the path of one.
        **how: Keywords for keys of the specification, such as ``sensitive``, ``qi`` and ``threshold``. They complete a
            source, or change a specification. Others say how the engine runs (``RunKeywords``).

    Raises:
        UsageError: The mechanism is not bucketization.
    """
    keywords, rest = split_keywords(how)
    whole = as_spec(spec, keywords, verb="curve")
    with options_from(rest, "curve") as options, open_records(whole, options) as (db, records):
        return whole.implementation.predict_curve(db, records, whole.mechanism)
