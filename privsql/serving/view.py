"""The page of one release: what its template is filled with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from privsql.errors import PrivsqlError, UsageError
from privsql.pages.rendering import page
from privsql.releases.lines import lines
from privsql.serving import picture, shown
from privsql.serving.asked import Asked, address, parameters, read
from privsql.serving.sql import statement, text
from privsql.serving.words import summary, words

if TYPE_CHECKING:
    from privsql.answers.answer import Answer
    from privsql.serving.asked import Pairs
    from privsql.serving.shelf import Served


@dataclass(frozen=True)
class View:
    """What stands on the page: a question and its answer, or the line by which it was ``refused``."""

    asked: Asked
    pairs: Pairs = field(default_factory=list)
    answer: Answer | None = None
    refused: str = ""
    again: bool = False
    """Whether the same may be answered another time."""

    def html(self, served: Served, *, several: bool, verified: bool) -> str:
        """The page."""
        told = [(name, value) for name, value in lines(served.manifest) if value not in (None, "")]
        facts = {"served": served, "form": served.form, "asked": self.asked, "sql": _written(self.asked, served)}
        facts |= {"answer": self.answer, "refused": self.refused, "again": self.again, "told": told}
        facts |= {"words": words(self.asked, served.form), "summary": summary}
        facts |= {"several": several, "verified": verified} | (
            self._answered(served, self.answer) if self.answer else {}
        )
        return page("serve/release.html", title=served.manifest.name, **facts)

    def _answered(self, served: Served, answer: Answer) -> dict[str, Any]:
        sql = self.asked.sql or text(statement(self.asked, served.form), lines=False)
        return {
            "table": shown.shown(answer),
            "headline": shown.headline(answer),
            "csv": at(served, "/answer.csv", self.pairs),
            "json": at(served, "/answer.json", self.pairs),
            "picture": at(served, "/picture.svg", self.pairs) if picture.drawable(answer) else "",
            "shell": shown.shell(served, sql, self.asked.confidence, self.asked.estimator),
            "python": shown.python(served, sql, self.asked.confidence, self.asked.estimator),
        }


def refused(query: bytes, served: Served, error: PrivsqlError) -> View:
    """The page of an address that is refused, with as much of what it asked as can be shown again."""
    try:
        asked = read(parameters(query), served.form)
    except PrivsqlError:
        asked = Asked()
    return View(asked, refused=str(error), again=not isinstance(error, UsageError))


def sql_of(asked: Asked, served: Served) -> str:
    """The SQL that is asked; ``UsageError`` for a value that its column can't have."""
    return asked.sql or text(statement(asked, served.form))


def at(served: Served, path: str, pairs: Pairs) -> str:
    """An address below a release's own."""
    return f"/{served.slug}{path}" + (f"?{address(pairs)}" if pairs else "")


def _written(asked: Asked, served: Served) -> str:
    """The SQL that is shown to be changed."""
    try:
        return sql_of(asked, served)
    except PrivsqlError:
        return sql_of(Asked(), served)
