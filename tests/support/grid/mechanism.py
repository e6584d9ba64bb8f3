"""A sixth mechanism that is differentially private."""

from privsql.mechanisms.contingency.mechanism import MARGINAL_MECHANISM as CELLS
from support.grid.parameters import Grid
from support.thin import thin

MECHANISM = thin(CELLS, Grid)
