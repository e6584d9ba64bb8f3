"""The publisher's ledger: which records were released before, so that releases of the same people do not add up unseen.

``book`` is its file, who may read it and the events in it; ``composition`` finds earlier releases of the same people
and says what follows for the next one, by groups or by budget; ``publication`` is one release on its way into the
ledger;
``keeping`` is the entry point for the verbs.
"""
