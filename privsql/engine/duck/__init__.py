"""DuckDB: no other package calls it. ``privsql.engine.open`` opens its sessions."""
