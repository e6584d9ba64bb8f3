"""The publisher's ledger: what was released of whom, so that releases of the same people do not add up unseen.

``place`` where it lies and who may read it, ``book`` what stands in it, ``storage`` its file, ``evidence`` the rule on
who is the same, ``subjects`` what releases and a source have in common, by ``names``, records and ``histograms``;
``groups`` and ``budget`` what follows from that for the next release, ``unfinished`` what became of releases of killed
processes, ``keeping`` the one way in for publishing.
"""
