"""Releases on disk: making, opening and checking them, and the publisher's ledger."""
