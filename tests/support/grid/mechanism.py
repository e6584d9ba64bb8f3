"""A sixth mechanism that is differentially private."""

from privsql.mechanisms.contingency.marginals.mechanism import MECHANISM as CELLS
from support.grid.parameters import Grid
from support.thin import thin

MECHANISM = thin(CELLS, Grid)
