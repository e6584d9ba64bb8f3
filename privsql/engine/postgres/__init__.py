"""Postgres 15 or later: the only package that talks to it, through ADBC (the extra ``privsql[postgres]``)."""
