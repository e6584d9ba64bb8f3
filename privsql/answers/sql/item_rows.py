"""Translate questions about rows of (record, item) into questions about the set of items of each record.

The source of such a release has one row for each item of a record, and people ask their questions in that form.
COUNT(*) of the rows with an item is the number of records that have it. COUNT(DISTINCT record) of the rows with any of
some items is the number of records that have any of them. Without a condition on the item, COUNT(*) still counts all
records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.sql.grammar import is_count, parse_query_text, read_clause, set_condition, shorten_sql
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, column
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

LISTS = (exp.ArrayContains, exp.ArrayContainsAll, exp.ArrayOverlaps, exp.Anonymous, exp.Length, exp.ArraySize)
WORKS = (
    "{item} = 'a' or {item} IN ('a', 'b') in WHERE, COUNT(*) and COUNT(DISTINCT {record}), alone or by GROUP BY {item}"
)


@dataclass(frozen=True)
class ItemRows:
    """A translator of queries about rows, one for each item of a record, into queries about the record's set of items.

    The source has such rows, while the release has item sets.

    Attributes:
        record: The column that identifies the record.
        item: The column that holds the item.
    """

    record: str
    item: str

    def translate(self, sql: str) -> str:
        r"""Translate a query about rows into one about item sets; return any other query unchanged.

        >>> print(ItemRows("basket", "good").translate("SELECT COUNT(*) FROM t WHERE good = 'ale'"))
        SELECT COUNT(*) FILTER(WHERE LIST_CONTAINS("good", 'ale')) FROM t
        """
        tree = parse_query_text(sql)
        if not isinstance(tree, exp.Select) or tree.find(exp.Explode, exp.Unnest):
            return sql
        asked = [one for one in tree.find_all(exp.Column) if self._is_item(one) and one.find_ancestor(*LISTS) is None]
        records = [one for one in tree.find_all(exp.Column) if fold_name(one.name) == fold_name(self.record)]
        if not asked and not records:
            return sql
        if tree.find(exp.Subquery) or tree.args.get("joins") or tree.args.get("having") or tree.args.get("with_"):
            raise self._refuse(tree)
        for one in (*asked, *records):
            one.set("table", None)
        where = read_clause(tree, "where")
        chosen, rest = self._split_condition(where)
        set_condition(tree, "where", rest)
        if tree.args.get("group"):
            self._group_by_item(tree, chosen)
        else:
            for count in list(tree.find_all(exp.Count)):
                holder = count.parent if isinstance(count.parent, exp.Filter) else count
                holder.replace(self._count_sets(count, holder, chosen))
        left = [one for one in tree.find_all(exp.Column) if one.table != UNNESTED]
        if any(self._is_row_of(one) for one in left):
            raise self._refuse(tree)
        return tree.sql(DIALECT)

    def _is_row_of(self, node: exp.Column) -> bool:
        """Return whether a column exists in the rows of the source alone, so that a translated query can't name it.

        This is the column that identifies the record. It is also the column of the item, except inside functions of
        lists, where it stands for the set of items.
        """
        is_list = node.find_ancestor(*LISTS, exp.Unnest) is not None
        return fold_name(node.name) == fold_name(self.record) or (self._is_item(node) and not is_list)

    def _is_item(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) and fold_name(node.name) == fold_name(self.item)

    def _refuse(self, node: exp.Expr) -> UsageError:
        works = WORKS.format(item=self.item, record=self.record)
        return UsageError(
            f"{shorten_sql(node)} is not supported for rows of ({self.record}, {self.item}); what works is {works}; "
            f"records with all of some items are COUNT(*) WHERE list_has_all({self.item}, ['a', 'b'])"
        )

    def _split_condition(self, condition: exp.Expr | None) -> tuple[list[exp.Expr] | None, exp.Expr | None]:
        """Split a condition on rows.

        Returns:
            The items that a row may have, None if the condition names no item; and the rest of the condition.
        """
        chosen: list[exp.Expr] | None = None
        rest = []
        whole = None if condition is None else condition.unnest()
        for part in () if whole is None else whole.flatten() if isinstance(whole, exp.And) else (whole,):
            part = part.unnest()
            named = self._read_items(part)
            if named is None:
                if any(self._is_item(one) and one.find_ancestor(*LISTS) is None for one in part.find_all(exp.Column)):
                    raise self._refuse(part)
                rest.append(part.copy())
            else:
                chosen = named if chosen is None else [one for one in chosen if one in named]
        return chosen, exp.and_(*rest) if rest else None

    def _read_items(self, part: exp.Expr) -> list[exp.Expr] | None:
        """Return the items of which a row must have one; None if the condition is not about items."""
        if isinstance(part, exp.EQ) and self._is_item(part.this):
            return [part.expression.copy()]
        if isinstance(part, exp.EQ) and self._is_item(part.expression):
            return [part.this.copy()]
        if isinstance(part, exp.In) and self._is_item(part.this) and part.expressions:
            return list(dict.fromkeys(one.copy() for one in part.expressions))
        if isinstance(part, exp.Or):
            parts = [self._read_items(one.unnest()) for one in part.flatten()]
            known = [one for one in parts if one is not None]
            return list(dict.fromkeys(item for one in known for item in one)) if len(known) == len(parts) else None
        return None

    def _is_of_records(self, count: exp.Count) -> bool:
        """Return whether a count is COUNT(DISTINCT record), which counts records; COUNT(*) counts rows.

        Raises:
            UsageError: It is another count.
        """
        if is_count(count):
            return False
        held = count.this.expressions if isinstance(count.this, exp.Distinct) else []
        if len(held) == 1 and isinstance(held[0], exp.Column) and fold_name(held[0].name) == fold_name(self.record):
            return True
        raise self._refuse(count)

    def _count_sets(self, count: exp.Count, holder: exp.Expr, chosen: Sequence[exp.Expr] | None) -> exp.Expr:
        """Translate a count of rows (record, item) into a count of the records that hold some items.

        Args:
            count: The count.
            holder: The count with its FILTER, or the count itself.
            chosen: The items that WHERE names; None if it names none.
        """
        condition = holder.expression.this if isinstance(holder, exp.Filter) else None
        own, rest = self._split_condition(condition)
        if own is not None and chosen is not None:
            items: Sequence[exp.Expr] | None = [one for one in chosen if one in own]
        else:
            items = own if chosen is None else chosen
        once = self._is_of_records(count)
        if items is None:
            return _count_where(rest)
        if once and len(items) > 1:
            held = exp.func("list_has_any", column(self.item), exp.array(*items))
            return _count_where(held if rest is None else exp.and_(held, rest))
        parts: list[exp.Expr] = [exp.func("list_contains", column(self.item), one) for one in items] or [exp.false()]
        counts = [_count_where(one if rest is None else exp.and_(one, rest)) for one in parts]
        result = counts[0]
        for one in counts[1:]:
            result = exp.Add(this=result, expression=one)
        return exp.paren(result) if len(counts) > 1 else result

    def _group_by_item(self, tree: exp.Select, chosen: Sequence[exp.Expr] | None) -> None:
        """Change a query in place so that it counts the records that hold each item, by UNNEST.

        Args:
            tree: The query.
            chosen: The items to count; None for all.
        """
        keys, shown = tree.args["group"].expressions, [one for one in tree.expressions if not one.find(exp.Count)]
        names = {fold_name(one.alias) for one in shown if one.alias}
        unknown = [
            one for one in keys if not self._is_item(one) and not one.is_int and fold_name(one.name) not in names
        ]
        if unknown or not all(self._is_item(one.unalias()) for one in shown):
            raise self._refuse(tree)
        if len(keys) == 1:
            tree.set("group", exp.Group(expressions=[column(self.item)]))
        for count in list(tree.find_all(exp.Count)):
            self._is_of_records(count)
            if isinstance(count.parent, exp.Filter):
                raise self._refuse(count.parent)
            count.replace(exp.Count(this=exp.Star()))
        for one in [
            one for one in tree.find_all(exp.Column) if self._is_item(one) and one.find_ancestor(exp.Where) is None
        ]:
            one.replace(column(self.item, UNNESTED))
        listed = exp.Unnest(
            expressions=[column(self.item)],
            alias=exp.TableAlias(this=exp.to_identifier(UNNESTED), columns=[exp.to_identifier(self.item)]),
        )
        tree.set("joins", [exp.Join(this=listed, kind="CROSS")])
        if chosen is not None:
            among = exp.In(this=column(self.item, UNNESTED), expressions=[one.copy() for one in chosen])
            set_condition(tree, "where", read_clause(tree, "where"), among)


UNNESTED = "of_the_record"


def _count_where(condition: exp.Expr | None) -> exp.Expr:
    """Return COUNT(*) of the records that meet a condition; of all records if it is None."""
    count = exp.Count(this=exp.Star())
    return count if condition is None else exp.Filter(this=count, expression=exp.Where(this=condition))
