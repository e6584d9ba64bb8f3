"""Forty changes of core formulas, each of which the tests should notice: ``python -m tests.soak changes``.

Each change is made in a copy of the repository, where the test files that import the changed module, or lie in the
folder of its mechanism, run up to the first failure: first the default tests, then the slow ones. What survives both
gets a test, or a line in ``HARMLESS`` of why nothing can notice it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("privsql", "sql", "tests", "docs", "examples", "pyproject.toml", "README.md", "SECURITY.md", "CHANGELOG.md")
LONGEST = 600  # seconds of the tests of one change


@dataclass(frozen=True)
class Change:
    """A change of one line: what it breaks, in which file, and both texts. The old one stands there once."""

    breaks: str
    file: str
    old: str
    new: str


BUCKETIZE, PERTURB, PERMUTE = (f"privsql/mechanisms/{name}" for name in ("bucketize", "perturb", "permute"))
LEDGER = "privsql/releases/ledger"
CHANGES = (
    # Thresholds and bounds
    Change("a threshold is cut at 1", "privsql/exact.py", "min(Fraction(1), self.slope", "max(Fraction(1), self.slope"),
    Change("l-diversity rounds up", f"{BUCKETIZE}/search.py", "*(-(-f.denominator // f", "*((f.denominator // f"),
    Change("Anatomy is eligible", f"{BUCKETIZE}/search.py", "max()) > buckets:", "max()) > buckets + 1:"),
    Change(
        "a fill constraint", f"{BUCKETIZE}/search.py", ".sum()) >= size * buckets:", ".sum()) >= size * buckets - 1:"
    ),
    Change("eq. 7 has a solution", f"{BUCKETIZE}/search.py", "(n % divisor == 0) & (rest >= 0)", "(rest >= 0)"),
    Change("the frontier of values", f"{BUCKETIZE}/search.py", "order[counts > record]", "order[counts >= record][:1]"),
    Change(
        "a belief is a share",
        f"{BUCKETIZE}/beliefs.py",
        "Fraction(int(most), int(size))",
        "Fraction(int(most) - 1, int(size))",
    ),
    Change("what is certain", f"{BUCKETIZE}/beliefs.py", "if most >= size)", "if most > size)"),
    Change("more than one half", f"{BUCKETIZE}/beliefs.py", "if 2 * most > size)", "if 2 * most >= size)"),
    Change("values that may be certain", f"{BUCKETIZE}/bounds.py", "if value == 1)", "if value >= 0)"),
    Change("what a fake covers", f"{BUCKETIZE}/fake_law.py", "(size * unit // (size + sigma))", "(unit)"),
    Change(
        "an amplification",
        f"{PERTURB}/plan.py",
        "rho2 * (1 - rho1) / (rho1 * (1 - rho2))",
        "rho2 * (1 - rho1) / (rho1 * (1 - rho1))",
    ),
    Change("the largest prior", f"{PERTURB}/plan.py", "part[problem.protected].max(", "part[problem.protected].min("),
    Change("k values and a range of e", f"{PERMUTE}/grouping.py", ">= self.k and int", ">= self.k - 1 and int"),
    # Draws
    Change(
        "a record keeps its value", f"{PERTURB}/publish.py", "np.where(choice < stay, 0", "np.where(choice <= stay, 0"
    ),
    Change(
        "records of a value are shuffled",
        f"{PERTURB}/publish.py",
        "if np.count_nonzero(counts) > 1:",
        "if np.count_nonzero(counts) > 2:",
    ),
    # Noise
    Change(
        "the scale of Laplace noise",
        "privsql/dp_random.py",
        "if Fraction(nearest) * epsilon >= 1 else",
        "if Fraction(nearest) * epsilon < 1 else",
    ),
    Change(
        "a Gaussian sigma",
        "privsql/dp_random.py",
        "result = math.sqrt(1 / (2 * rho))",
        "return math.sqrt(1 / (4 * rho))",
    ),
    Change("a change by two", "privsql/dp_random.py", "budget / (self.moved**2 if", "budget / (self.moved if"),
    Change(
        "a choice whose scores fall",
        "privsql/dp_random.py",
        "noise_scale(epsilon if monotonic else epsilon / 2)",
        "noise_scale(epsilon)",
    ),
    Change("rho rounds down", "privsql/dp_random.py", 'rounding="ROUND_FLOOR"', 'rounding="ROUND_CEILING"'),
    Change("records of a person", "privsql/mechanisms/dp/parameters.py", "(records**2 if", "(records if"),
    # Estimators
    Change(
        "a retention probability",
        f"{PERTURB}/tables.py",
        "(self.gamma - 1) / (self.domain_sizes - 1 + self.gamma)",
        "(self.gamma - 1) / (self.domain_sizes + self.gamma)",
    ),
    Change(
        "equation 7",
        f"{PERTURB}/answers.py",
        "estimate = (result - totals * s * q) / p",
        "estimate = (result - totals * q) / p",
    ),
    Change(
        "the variance of equation 7",
        f"{PERTURB}/answers.py",
        "inside, outside = p + s * q, s * q",
        "inside, outside = p + q, s * q",
    ),
    Change("the linear estimator", f"{BUCKETIZE}/estimator.py", "weights = gain + shares -", "weights = gain -"),
    Change(
        "its deviation", f"{BUCKETIZE}/estimator.py", "squares - 2 * shares * product", "squares - shares * product"
    ),
    Change(
        "Student's quantile",
        "privsql/answers/estimate.py",
        "tail = (1 - confidence) / 2",
        "tail = (1 - confidence) / 3",
    ),
    Change(
        "bounds of counts",
        "privsql/answers/estimate.py",
        "np.ceil(low - 1 / 2), np.floor(high + 1 / 2)",
        "np.floor(low), np.floor(high)",
    ),
    Change(
        "the mean of a ratio", "privsql/attacks/differential.py", "(1 + 2 * scale**2 / x**2)", "(1 + scale**2 / x**2)"
    ),
    # The ledger
    Change(
        "epsilons add up", f"{LEDGER}/budget.py", "return pure + (max(joint", "return max(pure, 0) * 0 + (max(joint"
    ),
    Change("a cap holds", f"{LEDGER}/budget.py", "if total > cap.epsilon:", "if total > 2 * cap.epsilon:"),
    Change(
        "the smallest delta",
        f"{LEDGER}/budget.py",
        "return min((one.delta for one in parts if one.delta)",
        "return max((one.delta for one in parts if one.delta)",
    ),
    Change("few common names", f"{LEDGER}/evidence.py", "self.common <= FEW or", "self.common <= 50 * FEW or"),
    Change("a withdrawn release", f"{LEDGER}/book.py", "if not entry.withdrawn]", "]"),
    Change(
        "a release of another population",
        f"{LEDGER}/composition.py",
        "chain = self._cover_chain(same) if not others else None",
        "chain = self._cover_chain(same)",
    ),
    # Checks
    Change("buckets obey thresholds", "sql/verify/thresholds_hold.sql", "* w.size, TRUE)", "* w.size * 2, TRUE)"),
    Change("sizes are stated", "sql/verify/setting_true.sql", "OR f.buckets IS DISTINCT FROM c.buckets ", ""),
    Change(
        "groups of values keep bounds",
        f"{BUCKETIZE}/checks.py",
        "if Fraction(one.found) > Fraction(one.bound)",
        "if Fraction(one.found) > 1",
    ),
    Change("the channel is that of ST", f"{BUCKETIZE}/checks.py", "np.subtract.at(met,", "np.subtract.at(met.copy(),"),
)
# Changes that no test can notice, each with the reason.
HARMLESS: dict[str, str] = {}


def find_tests(root: Path, file: str) -> list[Path]:
    """Return the tests of a changed file: those that name it first, then those of its folder."""
    tests = [path for path in sorted((root / "tests").rglob("test_*.py")) if "fuzz" not in path.parts]
    if file.startswith("sql/"):
        named = [root / "tests" / Path(file).with_suffix(".test")]
        folder = "mechanisms/bucketize"
    else:
        module = file.removesuffix(".py").replace("/", ".")
        package, name = module.rsplit(".", 1)
        words = (f"from {module} import", f"import {module}", f"from {package} import")
        texts = {one: one.read_text(encoding="utf-8") for one in tests}
        named = [
            one for one, text in texts.items() if words[0] in text or words[1] in text or _takes(text, words[2], name)
        ]
        folder = "/".join(file.split("/")[1:-1]).replace("releases/ledger", "releases/test_ledger")
    inside = [one for one in tests if folder and str(one.relative_to(root / "tests")).startswith(folder)]
    return list(dict.fromkeys([*named, *inside]))


def _takes(text: str, start: str, name: str) -> bool:
    """Return whether a test file imports a module by its name from its package."""
    lines = [line for line in text.splitlines() if line.startswith(start)]
    return any(name in line.removeprefix(start).replace(",", " ").split() for line in lines)


def try_change(root: Path, change: Change) -> str:
    """Make a change in a copy, run its tests, and undo it; return which tests noticed it."""
    path = root / change.file
    text = path.read_text(encoding="utf-8")
    tests = [str(one) for one in find_tests(root, change.file)]
    path.write_text(text.replace(change.old, change.new), encoding="utf-8")
    try:
        for which in ("default", "slow"):
            marks = ["-m", "slow and not soak"] if which == "slow" else []
            command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider", *marks, *tests]
            environment = {**os.environ, "PYTHONPATH": str(root)}
            try:
                code = subprocess.run(
                    command, cwd=root, env=environment, capture_output=True, timeout=LONGEST, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                return f"{which} tests (too slow)"
            if code not in (0, 5):  # 5: no test of this kind
                return f"{which} tests"
    finally:
        path.write_text(text, encoding="utf-8")
    return "harmless" if change.breaks in HARMLESS else "SURVIVED"


def main() -> int:
    """Try all changes, print what noticed each, and return 1 if one survived."""
    fates: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "copy"
        root.mkdir()
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__", "img"))
            else:
                shutil.copy(source, root / name)
        for change in CHANGES:
            begun = time.monotonic()
            fates.append(try_change(root, change))
            print(f"{fates[-1]:<26}{time.monotonic() - begun:5.0f} s  {change.breaks} ({change.file})", flush=True)
    kinds = {fate: fates.count(fate) for fate in dict.fromkeys(fates)}
    print(f"{len(fates)} changes: " + ", ".join(f"{number} {fate}" for fate, number in kinds.items()))
    return int("SURVIVED" in fates)
