"""The publisher's ledger: which records were released before, so that releases of the same people do not add up unseen.

``book`` is its file, who may read it and the events in it; ``subjects`` and ``evidence`` find earlier releases of the
same people; ``composition``, the entry point for the verbs, decides whether a release may follow these; ``publication``
is one release on its way into the ledger. The decision depends on the mechanism: privacy budgets add up to a cap. Other
mechanisms guarantee something for a single release, or for a chain of releases whose groups of records fit together.
"""
