"""The checks of a (k,e)-anonymous release. They share nothing with the search: only the published tables, the
manifest's claims, SQL, and exact numbers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, fill, same, table, temp
from privsql.mechanisms.contract import stated
from privsql.mechanisms.permute.parameters import Permute
from privsql.mechanisms.permute.scale import FLOATS, narrow, scale, width
from privsql.model.checks import Check, Promised, differ, exceed, in_order, tally, values_true

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

SQL: tuple[str, ...] = ("core/", "permute/", "verify/")  # what makes and checks a release


class Facts(BaseModel):
    """What a release's manifest states of its groups."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    loss: float = Field(ge=0)
    error: str
    groups: int = Field(ge=1)
    smallest: int = Field(ge=1)
    largest: int = Field(ge=1)
    mean_width: float = Field(ge=0)
    held_back: int = Field(ge=0)
    left_out: int = Field(ge=0)


def read(manifest: Manifest) -> Permute:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    asked = stated(manifest, Facts, Permute, "groups")
    scale(manifest.sensitive, asked.e)
    return asked


def checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    roles, asked = manifest.roles, read(manifest)
    _name_tables(db, manifest, database)
    st, qit, values, sizes = temp("v_st"), temp("v_qit"), temp("v_values"), temp("v_sizes")
    dealt: Holes = {"qit": qit, "st": st, "values": values, "same_value": same("st", "v", roles.sa_keys)}
    return [
        Check("every group has k sensitive values over a range of e", unfine(st, roles, asked)),
        Check("values and their records are those of ST", values_true(st, values, roles)),
        Check("the values' rows lie in order", in_order(values, ["code", "records"], strict=True)),
        Check("counts are positive", fill("verify/counts_positive", {"st": st, "sa": roles.sa()})),
        Check("QIT and ST agree on every group", fill("verify/sizes_agree", {"qit": qit, "sizes": sizes})),
        Check("groups are numbered", fill("verify/numbered", {"table": sizes, "number": column("bid")})),
        Check("the shuffle deals out the values of ST", fill("verify/dealt_true", dealt)),
        Check("QIT rows lie in canonical order", in_order(qit, ["bid", *roles.qi_keys, "code"], strict=False)),
        Check("ST rows lie in canonical order, once each", in_order(st, ["bid", *roles.sa_keys], strict=True)),
        Check("groups and error are as stated", lambda: _claims(db, manifest, asked)),
    ]


def unfine(st: exp.Expr, roles: Roles, asked: Permute) -> exp.Query:
    """Groups of ``st``(bid, s0, count) that are not (k,e)-anonymous."""
    ends = narrow(roles.sensitive[0], asked.e, exp.column("low"), exp.column("high"))
    holes: Holes = {
        "st": st,
        "value": column(roles.sa_keys[0]),
        "k": exp.Literal.number(asked.k),
        "narrow": exp.paren(ends),
    }
    return fill("verify/groups_fine", holes)


def _name_tables(db: Relations, manifest: Manifest, database: str | None) -> None:
    """Give the release's tables internal names: v_qit, v_st, v_values, with v_sizes."""
    roles, own = manifest.roles, manifest.roles.by_sa
    db.view("v_qit", exp.select(*roles.qi_in(), *roles.by_qi.read("bid", "code")).from_(table("qit", database)))
    db.view("v_st", exp.select(*roles.sa_in(), *own.read("bid", "count")).from_(table("st", database)))
    listed = exp.select(*own.read("code"), *roles.sa_in(), *own.read("records"))
    db.view("v_values", listed.from_(table("privsql_values", database)))
    db.make("v_sizes", fill("verify/bucket_sizes", {"st": temp("v_st"), "fakes": exp.Literal.number(0)}))


def _claims(db: Relations, manifest: Manifest, asked: Permute) -> list[str]:
    """Recompute what the manifest states from ST."""
    field, stated = manifest.sensitive[0], manifest.facts
    widths, _ = _groups(db, manifest, asked)
    sizes = dict(db.rows(exp.select("bid", "size").from_(temp("v_sizes"))))
    whole = sum(widths.values(), Fraction(0))
    records = sum(sizes.values())
    mean = sum((widths[bid] * size for bid, size in sizes.items()), Fraction(0)) / records
    found = {
        "loss": float(whole),
        "error": scale([field], asked.e).shown(whole),
        "groups": len(widths),
        "smallest": min(sizes.values()),
        "largest": max(sizes.values()),
        "mean_width": float(mean),
    }
    wrong = [f"{key}: stated {stated[key]}, found {actual}" for key, actual in found.items() if stated[key] != actual]
    counted = [] if records == manifest.published else [f"published: stated {manifest.published}, found {records}"]
    held, left = stated["held_back"], stated["left_out"]  # nobody else is left out
    others = [] if held == left <= (manifest.suppressed or 0) else [f"held back: {held}, left out: {left}"]
    return wrong + counted + others


def _groups(db: Relations, manifest: Manifest, asked: Permute) -> tuple[dict[int, Fraction], int]:
    """The exact range of every group, and the fewest different values of one."""
    field, value = manifest.sensitive[0], column(manifest.roles.sa_keys[0])
    ends = width(field, exp.column("low"), exp.column("high"))
    rows = db.rows(fill("verify/groups_wide", {"st": temp("v_st"), "value": value, "width": ends}))
    fewest = min((int(row[-1]) for row in rows), default=0)
    if field.type in FLOATS:
        return {bid: Fraction(high) - Fraction(low) for bid, low, high, *_ in rows}, fewest
    step = scale([field], asked.e).sql_step
    return {bid: Fraction(found) * step for bid, _, _, found, _ in rows}, fewest


def bounds(db: Relations, manifest: Manifest) -> list[Promised]:
    """The different values and the range of the groups that have least of them."""
    asked = read(manifest)
    widths, fewest = _groups(db, manifest, asked)
    narrowest = scale(manifest.sensitive, asked.e).shown(min(widths.values(), default=Fraction(0)))
    return [
        Promised("different values of every group", f">= {asked.k}", str(fewest), belief=False),
        Promised("range of every group", f">= {asked.e}", narrowest, belief=False),
    ]


def long_checks(manifest: Manifest) -> list[Check]:  # noqa: ARG001 (all mechanisms take it)
    """Nothing is left to ``verify`` alone."""
    return []


def source_checks(db: Relations, manifest: Manifest, source: Records, asked: Permute) -> list[Check]:  # noqa: ARG001
    """The checks against the source, prepared as ``records``, after ``checks`` has named the release's tables."""
    roles = manifest.roles
    holes: Holes = {
        "records": temp("records"),
        "qit": temp("v_qit"),
        "st": temp("v_st"),
        "value": roles.sa(),
        "qi": roles.qi(),
        "qi_records": roles.qi("r"),
        "qi_expected": roles.qi("expected"),
        "same_value": same("r", "sole", roles.sa_keys),
        "same_qi": same("expected", "found", roles.qi_keys),
    }
    compared = exceed if manifest.facts["held_back"] else differ  # who is held back is not in the release
    sensitive = compared(
        roles.sa(), tally(temp("records"), roles.sa()), tally(temp("v_st"), roles.sa(), column("count"))
    )
    quasi = compared(roles.qi(), tally(temp("records"), roles.qi()), tally(temp("v_qit"), roles.qi()))
    found = [
        Check("parameters are those of the specification", lambda: _as_asked(read(manifest), asked)),
        Check("sensitive values are the source's", sensitive),
        Check("quasi-identifiers are the source's", quasi),
    ]
    if not manifest.facts["held_back"]:
        found.append(Check("records are in the groups of their values", fill("verify/groups_true", holes)))
    return found


def _as_asked(stated: Permute, asked: Permute) -> list[str]:
    pairs = (
        ("k", stated.k, asked.k),
        ("e", stated.e.amount, asked.e.amount),
        ("algorithm", stated.algorithm, asked.algorithm),
    )
    return [f"{name}: stated {found}, asked for {wanted}" for name, found, wanted in pairs if found != wanted]
