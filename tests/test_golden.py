"""Small releases under fixed seeds hold what they held, state what they stated and answer what they answered.

The default run makes one of every mechanism. ``pytest tests/test_golden.py --regenerate`` stores what is found of all,
and prints what changed. Contents are compared, never bytes of files. Of manifests, ``releases.CHANGING`` and
``releases.CHANGING_FACTS`` are left out.
"""

from __future__ import annotations

from typing import Any

import pytest

from golden import releases

COUNTED = "SELECT COUNT(*) FROM t WHERE age < 35 AND disease = 'd1'"
GROUPED = "SELECT disease, COUNT(*) FROM t WHERE sex = 'F' GROUP BY disease"
PAID = "SELECT SUM(pay) FROM t WHERE age < 35"
MEANS = "SELECT sex, AVG(pay), MIN(pay), MAX(pay) FROM t GROUP BY sex"
BOTH = "SELECT COUNT(*) FROM t WHERE list_contains(goods, 'ale') AND list_contains(goods, 'bread')"
CROSSED = "SELECT sex, COUNT(*) FROM t WHERE zip < 3 GROUP BY sex"
BUCKETS = ("anatomy", "optimal", "informative", "fakes")
ASKED = [
    *((name, estimator, sql) for name in BUCKETS for estimator in ("linear", "baseline")
      for sql in (COUNTED, GROUPED)),
    ("optimal", "linear", "SELECT SUM(age), AVG(age) FROM t WHERE disease = 'd0'"),
    ("optimal", "linear", "SELECT zip, AVG(age) FROM t WHERE sex = 'M' GROUP BY zip"),
    ("optimal", "linear", "SELECT COUNT(*) FROM t WHERE disease IN ('d0', 'd2') AND age BETWEEN 25 AND 40"),
    ("optimal", "linear", "SELECT COUNT(*), SUM(age) FROM t WHERE age >= 30"),
    ("components", "linear", "SELECT stage, COUNT(*) FROM t WHERE disease = 'd0' GROUP BY stage"),
    *(("pp", estimator, sql) for estimator in ("reconstructed", "baseline") for sql in (COUNTED, GROUPED)),
    ("pp", "reconstructed", "SELECT AVG(age) FROM t WHERE disease = 'd0'"),
    ("nested", "baseline", PAID),
    ("nested", "baseline", MEANS),
    ("nested", "baseline", "SELECT COUNT(*) FROM t WHERE pay BETWEEN 2000 AND 4000 AND sex = 'F'"),
    ("growing-2", "baseline", PAID),
    ("growing-2", "baseline", "SELECT COUNT(*) FROM t WHERE pay > 3000"),
    *((name, "reconstructed", sql) for name in ("diffpart", "views")
      for sql in (BOTH, "SELECT COUNT(*) FROM t WHERE list_contains(goods, 'cheese')", "SELECT COUNT(*) FROM t")),
    *((name, "reconstructed", sql) for name in ("tree", "marginals")
      for sql in (CROSSED, "SELECT COUNT(*) FROM t WHERE stage = 's1'", "SELECT zip, COUNT(*) FROM t GROUP BY zip")),
]  # fmt: skip


@pytest.fixture(
    scope="module", params=[pytest.param(releases.FEW, id="few"), pytest.param(None, id="all", marks=pytest.mark.slow)]
)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the releases hold, state and answer now, by the name of the stored file; ``releases``: their names."""
    names = request.param or releases.ALL
    if request.config.getoption("regenerate"):
        names = releases.ALL
    made = releases.publish_recipes(tmp_path_factory.mktemp("golden"), names)
    tables, manifests = releases.read_contents(made)
    answers = releases.answer_all(made, [one for one in ASKED if one[0] in names])
    return {"tables": tables, "manifests": manifests, "answers": answers, "releases": names}


@pytest.mark.parametrize("name", ["tables", "manifests", "answers"])
def test_nothing_changed(found: dict[str, Any], name: str, request: pytest.FixtureRequest) -> None:
    changed = releases.compare(name, found[name], found["releases"])
    if request.config.getoption("regenerate"):
        releases.store(name, found[name])
        print("\n".join(changed) or f"{name}: nothing changed")
        return
    assert not changed, "\n".join(changed)
