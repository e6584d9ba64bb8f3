"""Differentially private contingency tables as a mechanism (``contract``): its algorithms, joined."""

from __future__ import annotations

from privsql.mechanisms.contingency.diffpart.mechanism import DIFFPART
from privsql.mechanisms.contingency.marginals.mechanism import MECHANISM as OF_MARGINALS
from privsql.mechanisms.variants import joined

MECHANISM = joined({"marginals": OF_MARGINALS, "diffpart": DIFFPART})
