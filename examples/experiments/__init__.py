"""The experiments of the papers behind privsql, one for each figure and table: ``python examples/experiments/run.py``.

A module per paper holds its experiments, each registered by the decorator ``common.experiment``, and in ``NOT_HERE``
why other figures and tables have none. ``data`` has the tables, ``pictures`` draws and ``pages`` writes them up.
"""

PAPERS = {  # module: the heading that the paper has in docs/papers.md
    "inferential": "Inferential or differential: privacy laws dictate",
    "small_domain": "Small domain randomization",
    "incremental": "Incremental (k,e)-anonymity",
    "diffpart": "Publishing set-valued data via differential privacy",
}
