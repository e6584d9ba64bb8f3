"""DuckDB: the only package that talks to it. ``privsql.engine.open`` hands out what is made here."""
