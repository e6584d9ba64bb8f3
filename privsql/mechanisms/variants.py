"""One mechanism of several algorithms that share no more than what is asked of them, as one ``Mechanism``.

Each variant is a whole ``Mechanism`` over the same parameters. What is called with these, or with a manifest, goes to
the variant whose algorithm they name; what holds of all is said of all.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from privsql.attacks.finding import Finding
    from privsql.attacks.suite import Adversary, Learnt, Suite
    from privsql.mechanisms.contract import Mechanism

# Members that are called, and which of their arguments names the algorithm.
BY_PARAMETERS = {"plan": 2, "algorithms": 2, "publish": 2, "source_checks": 3, "promise": 0, "words": 0}
BY_MANIFEST = {
    "read": 0, "tables": 0, "view": 0, "checks": 1, "long_checks": 0, "measured": 1, "bounds": 1, "answers": 1,
    "structure": 1,
}  # fmt: skip
BY_FACTS = ("warnings", "figures")


def joined(variants: Mapping[str, Mechanism[Any]]) -> Mechanism[Any]:
    """The mechanism of all ``variants``, by algorithm; the first one is the default, which is what is proposed."""
    first = next(iter(variants.values()))
    if any(one.parameters is not first.parameters for one in variants.values()):
        raise TypeError(f"the algorithms of {first.kind!r} are not asked for by the same parameters")

    def variant(algorithm: object) -> Mechanism[Any]:
        if algorithm not in variants:
            raise UsageError(f"algorithm {algorithm!r} is not one of {', '.join(variants)}")
        return variants[str(algorithm)]

    def by_argument(name: str, place: int) -> Callable[..., Any]:
        return lambda *given: getattr(variant(given[place].algorithm), name)(*given)

    def by_facts(name: str) -> Callable[..., Any]:
        return lambda facts: getattr(variant(facts["algorithm"]), name)(facts)

    called: dict[str, Any] = {name: by_argument(name, at) for name, at in (BY_PARAMETERS | BY_MANIFEST).items()}
    told: dict[str, Any] = {name: by_facts(name) for name in BY_FACTS}
    return replace(
        first,
        sql=_all(one.sql for one in variants.values()),
        relations=_all(one.relations for one in variants.values()),
        advice=_all(one.advice for one in variants.values()),
        adversaries=_suite(variants),
        evaluate=lambda given: variant(given.answers.algorithm).evaluate(given),
        **called,
        **told,
    )


def _all(parts: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(parts)))


def _suite(variants: Mapping[str, Mechanism[Any]]) -> Suite[Any]:
    """Adversaries by name: each looks at a release as the variant that made it has it."""
    named: dict[str, dict[str, Adversary[Any]]] = {}
    for algorithm, one in variants.items():
        for adversary in one.adversaries.adversaries:
            named.setdefault(adversary.name, {})[algorithm] = adversary

    def of_release(by: Mapping[str, Adversary[Any]]) -> Callable[[Learnt[Any]], list[Finding]]:
        def attack(learnt: Learnt[Any]) -> list[Finding]:
            own = by.get(learnt.view.manifest.algorithm)
            return [] if own is None else own.attack(learnt)

        return attack

    found = tuple(replace(next(iter(by.values())), attack=of_release(by)) for by in named.values())
    return replace(next(iter(variants.values())).adversaries, adversaries=found)
