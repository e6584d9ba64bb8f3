"""Run by the interpreter of the peers' environment: synthetic rows of a table by one of OpenDP's algorithms.

    python peer.py AIM|MST epsilon|rho LOSS TABLE.parquet DOMAINS.json SYNTHETIC.parquet

Pure epsilon or zero-concentrated rho, one record added or removed. Domains are public: a list of whole numbers for
each column. Prints JSON: seconds of processor time, and the process's highest memory in MB.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

ROUNDINGS = 20  # losses that are tried, each a little less: the parts of some add up to more, by rounding


def main(algorithm: str, measure: str, loss: str, table: str, domains: str, to: str) -> None:
    """One release."""
    import opendp.prelude as dp
    import polars as pl  # type: ignore[import-not-found]

    begun = time.process_time()
    dp.enable_features("contrib")
    keys = json.loads(Path(domains).read_text(encoding="utf-8"))
    data = pl.read_parquet(table).select(pl.col(name).cast(pl.Int64) for name in keys)
    for less in range(ROUNDINGS):
        spent = {measure: float(loss) * (1 - less * 1e-9)}
        context = dp.Context.compositor(
            data=data.lazy(), privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(**spent)
        )
        asked = context.query(**spent).select(*keys)
        try:
            made = asked.contingency_table(keys=keys, algorithm=getattr(dp.mbi, algorithm)()).release()
        except dp.OpenDPException as error:
            if "insufficient budget" in str(error) and less + 1 < ROUNDINGS:
                continue
            raise
        made.synthesize().write_parquet(to)
        break
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": time.process_time() - begun, "megabytes": used}))


if __name__ == "__main__":
    main(*sys.argv[1:])
