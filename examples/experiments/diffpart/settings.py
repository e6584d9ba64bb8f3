"""What the experiments on item sets share: budgets, sizes, and how many queries are asked."""

EPSILONS = (0.5, 0.75, 1.0, 1.25)
ENDS = (0.5, 1.25)
UNIVERSES = (200, 600, 1012)
TABLES = ("msnbc", "stm")
ON = tuple((table, epsilon) for table in TABLES for epsilon in EPSILONS)  # tables with budgets
QUERIES = 10_000  # of each of five classes
RUNS = 10
RECORDS = {
    "msnbc": (200_000, 600_000, 989_818),
    "stm": (200_000, 700_000, 1_210_096),
}
ERROR = "mean relative error"
QUERY = f"{QUERIES:,} queries of each class; means of {RUNS} runs"
