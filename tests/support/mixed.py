"""Records of every type that has one text on all engines, and a request of every keyed mechanism for them."""

from __future__ import annotations

import hashlib
from typing import Any

PEOPLE = """
SELECT CAST(18 + (i * 7919) % 61 AS SMALLINT) AS age,
  CASE WHEN (i * 31) % 7 < 3 THEN 'é' WHEN i % 50 > 0 THEN 'M' END AS sex,
  DATE '2020-02-27' + CAST(i % 5 AS INTEGER) AS seen, TIMESTAMP '2020-01-01' + INTERVAL (i % 3) MILLISECOND AS at,
  CAST(i % 4 / 4 AS DECIMAL(9, 2)) AS part, i % 2 = 0 AS odd, 'v' || (i * 7 + i // 20 * 3) % 12 AS disease,
  CAST((i * i * 31) % 977 AS INTEGER) AS salary
FROM (SELECT i // 3 AS i FROM range(1200) t(i))
"""
QI = 'quasi_identifiers = ["age", "sex", "seen", "at", "part", "odd"]'
COARSER = 'bins = { age = 10, part = "0.5" }\nlevels = { sex = { M = "men" } }\nothers = { sex = "others" }'
MECHANISMS = {
    "multi-size": ("disease", 'threshold = "2*f + 0.1"\nalgorithm = "multi-size"'),
    "anatomy": ("disease", 'threshold = "1/6"\nalgorithm = "anatomy"'),
    "optimal": ("disease", 'threshold = "1/6"'),  # by default
    "informative": ("disease", 'threshold = "2*f + 0.1"'),  # by default where thresholds vary
    "fakes": ("disease", 'threshold = "1/6"\nalgorithm = "optimal"\nfake_values = 1'),
    "left out": ("disease", 'threshold = "1/12"\nalgorithm = "anatomy"\nexcess = "suppress"\nabsence = "unobservable"'),
    "randomize": ("disease", 'kind = "randomize"\nalgorithm = "pp"\nrho1 = "1/5"\nrho2 = "1/2"'),
    "permute": ("salary", 'kind = "permute"\nk = 4\ne = 20'),
}
DIGESTS = {
    "optimal": "5585df9d4aaeca9f25a1fed3440a7ab8656f01907339c0350f26f59270b29633",
    "informative": "1c89ce2173e12705f7e3083e1da7b6c53b4f856e55e69c2c0b3307d708098a25",
}  # of releases by default algorithms in portable order, seed 7


def digest(tables: dict[str, list[tuple[Any, ...]]]) -> str:
    """SHA-256 of the records and the lists of buckets of a release, as rows of ``repr``."""
    return hashlib.sha256(repr([tables["qit"], tables["st"]]).encode()).hexdigest()
