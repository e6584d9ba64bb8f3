"""DuckDB's engine. Other packages open its sessions through ``privsql.engine.open``."""
