"""The publisher's ledger: which records were released before, so that releases of the same people do not add up unseen.

``book`` is its file, who may read it and the events in it; ``subjects`` and ``evidence`` find earlier releases of the
same people; ``composition`` says what follows for the next one, by groups or by budget, and is the entry point for the
verbs; ``publication`` is one release on its way into the ledger.
"""
