"""A sixth mechanism for tables."""

from privsql.mechanisms.bucketize.mechanism import MECHANISM as BUCKETS
from support.slices.parameters import Slices
from support.thin import thin

MECHANISM = thin(BUCKETS, Slices)
