"""What the experiments on item sets share: budgets, sizes, and how many queries are asked."""

EPSILONS = (0.5, 0.75, 1.0, 1.25)
ENDS = (0.5, 1.25)
ON = (("msnbc", 0.5), ("msnbc", 1.25), ("stm", 1.25))  # tables with budgets
UNIVERSES = (200, 600, 1012)
TABLES = ("msnbc", "stm")
QUERIES = 200
RECORDS = {
    "msnbc": (200_000, 600_000, 989_818),
    "stm": (200_000, 700_000, 1_210_096),
}
ERROR = "mean relative error"
QUERY = f"{QUERIES} queries of each class"
