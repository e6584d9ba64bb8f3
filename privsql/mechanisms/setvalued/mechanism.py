"""Differentially private item sets as a mechanism (``contract``): its algorithms, joined."""

from __future__ import annotations

from privsql.mechanisms.setvalued.diffpart.mechanism import DIFFPART
from privsql.mechanisms.setvalued.views.mechanism import VIEWS
from privsql.mechanisms.variants import joined

MECHANISM = joined({"views": VIEWS, "diffpart": DIFFPART, "basic": DIFFPART})
