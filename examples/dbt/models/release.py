"""Publish the people: the rows pass through a private folder that is removed, and only the release stays."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import privsql


def model(dbt: Any, session: Any) -> Any:
    """One row: what was published, and how far beliefs go in it. Fails with privsql's own message."""
    dbt.config(materialized="table")
    asked = dbt.config.get("meta")
    target = Path(asked["release"]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "people.parquet"
        dbt.ref("people").write_parquet(str(file))
        spec = privsql.build(
            {
                "source": {"file": file, "name": "clinic.people", "id": "person_id"},
                "columns": {"quasi_identifiers": ["age", "sex", "zip"], "sensitive": "disease"},
                "mechanism": {"algorithm": "two-size", "threshold": asked["threshold"]},
                "release": {"name": "people", "to": target},
            }
        )
        found = privsql.publish(spec, replace=True).as_json()
        checks = privsql.verify(target, spec).as_json()["checks"]
    rows = [(target.name, found["records"], check["name"], check["ok"]) for check in checks]
    return session.values(*rows).project("col0 AS release, col1 AS records, col2 AS check_name, col3 AS holds")
