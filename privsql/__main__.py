"""``python -m privsql``."""

from privsql.cli import main

main()
