"""The same invented table released five ways, attacked and evaluated: a table and a picture of privacy and accuracy.

Run after make_census.py, in this folder. Occupation is the sensitive column of four releases, income of the fifth.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import altair as alt
from rich.console import Console
from rich.table import Table

import privsql

HERE = Path(__file__).parent
QUASI = ["age", "sex", "education", "marital", "race", "work_class", "birthplace"]
WAYS: dict[str, tuple[str, dict[str, object]]] = {
    "anatomy": ("occupation", {"algorithm": "anatomy", "threshold": "1/8"}),
    "optimal": ("occupation", {"algorithm": "optimal", "threshold": "1/8"}),
    "with fakes": ("occupation", {"algorithm": "optimal", "threshold": "1/8", "fake_values": 2}),
    "randomized": ("occupation", {"kind": "randomize", "rho1": "1/13", "rho2": "1/8"}),
    "(k,e) on income": ("income", {"kind": "permute", "k": 8, "e": 5000}),
}
ATTACKS = {"linkage": "linkage", "corruption": "1 known", "learning": "learning"}


def release(folder: Path, name: str) -> dict[str, float | None]:
    """Publish one way, attack it and evaluate it: mean belief of each adversary, and the error of answers."""
    sensitive, mechanism = WAYS[name]
    spec = privsql.build(
        {
            "source": {"file": HERE / "census.parquet"},
            "columns": {"quasi_identifiers": QUASI, "sensitive": sensitive},
            "release": {"name": "census", "to": folder / f"{len(list(folder.iterdir()))}.duckdb"},
            "mechanism": mechanism,
            "ledger": {"off": True},  # five releases of the same people: an experiment, of which none leaves the house
        }
    )
    privsql.publish(spec)
    found = {one.adversary: one for one in privsql.attack(spec.target, spec).findings if one.applies}
    beliefs = {label: found[name].mean if name in found else None for name, label in ATTACKS.items()}
    evaluated = privsql.evaluate(spec.target, spec, privsql.Workload(queries=400))
    summary = evaluated.scores[evaluated.best].summary()
    bands = [band for band in summary["bands"] if band["low"] >= 50]
    weights = sum(band["queries"] for band in bands)
    error = sum(band["queries"] * band["mean_relative_error"] for band in bands) / weights if weights else None
    return {**beliefs, "error": error, "covered": summary["coverage"]}


def picture(rows: dict[str, dict[str, float | None]], to: Path) -> None:
    """Accuracy against what the learning adversary believes."""
    shown = [{"way": name, **row} for name, row in rows.items() if None not in (row["learning"], row["error"])]
    base = alt.Chart(alt.InlineData(values=shown), title="Privacy against accuracy", width=560, height=360).encode(
        alt.X("error:Q", title="mean relative error of answers of 50 and more"),
        alt.Y("learning:Q", title="mean belief of the learning attacker"),
    )
    named = base.mark_text(align="left", dx=8, dy=-6).encode(text="way:N")
    (base.mark_circle(size=60).encode(alt.Color("way:N", legend=None)) + named).save(to, ppi=150)


def main() -> None:
    """Print the table and draw the picture."""
    with tempfile.TemporaryDirectory() as place:
        rows = {name: release(Path(place), name) for name in WAYS}
    table = Table(title="mean belief of each adversary in its best guess, and error of answers of 50 and more")
    for column in ("release", *ATTACKS.values(), "error", "covered"):
        table.add_column(column, justify="left" if column == "release" else "right")
    for name, row in rows.items():
        table.add_row(name, *("-" if value is None else f"{value:.1%}" for value in row.values()))
    Console(width=100).print(table)
    picture(rows, HERE / "five_ways.png")
    print("drew five_ways.png")


if __name__ == "__main__":
    main()
