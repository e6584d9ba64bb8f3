"""A condition split into parts on one side of a release alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.functions import CONNECTIVES, text
from privsql.engine.sqlfiles import column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from privsql.answers.question import Side

Filters = dict["Side", list[exp.Expr]]
Terms = dict["Side", list[tuple[str, exp.Expr]]]


def conjuncts(root: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions that ``root`` joins by AND."""
    rest = [root]
    while rest:
        node = rest.pop()
        if isinstance(node, exp.And):
            rest += [node.expression, node.this]
        elif isinstance(node, exp.Paren):
            rest.append(node.this)
        else:
            yield node


def split(root: exp.Expr | None, sides: Mapping[str, Side]) -> tuple[Filters, Terms, exp.Expr | None]:
    """Filters, terms and predicate of a condition, as ``CountQuery`` has them; ``sides``: of each column, by name."""
    filters: Filters = {"qi": [], "sa": []}
    terms: Terms = {"qi": [], "sa": []}
    rest = []
    about = _about(root, sides) if root is not None else {}
    for part in conjuncts(root) if root is not None else ():
        if len(about[id(part)]) == 2:
            rest.append(_over_terms(part, about, terms))
        else:
            filters[_one(about[id(part)])].append(part)
    return filters, terms, exp.and_(*rest) if rest else None


def _about(root: exp.Expr, sides: Mapping[str, Side]) -> dict[int, set[Side]]:
    """The sides that each part of a condition is about, by the part's identity."""
    found: dict[int, set[Side]] = {}
    for node in reversed(list(root.walk(bfs=True))):
        own: set[Side] = {sides[node.name]} if isinstance(node, exp.Column) else set()
        found[id(node)] = own.union(*(found[id(child)] for child in node.iter_expressions()))
    return found


def _over_terms(part: exp.Expr, about: dict[int, set[Side]], terms: Terms) -> exp.Expr:
    """The part with its largest one-sided parts replaced by named terms, in place."""
    if len(about[id(part)]) < 2:
        side = _one(about[id(part)])
        name = f"{side[0]}_{len(terms[side])}"
        terms[side].append((name, part.copy()))
        return column(name)
    if not isinstance(part, CONNECTIVES):
        raise UsageError(f"{text(part)}: comparing a quasi-identifier with a sensitive column is not supported")
    for key in ("this", "expression"):
        if part.args.get(key) is not None:
            part.set(key, _over_terms(part.args[key], about, terms))
    return part


def sides_of(root: exp.Expr, sides: Mapping[str, Side]) -> set[Side]:
    """The sides that an expression is about; none for a constant."""
    return {sides[item.name] for item in root.find_all(exp.Column)}


def _one(sides: set[Side]) -> Side:
    """The side of a condition on one side; constants count as quasi-identifiers."""
    return next(iter(sides), "qi")
