"""Packages that come with an extra of privsql's: which these are, and the line that says which one is missing."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from privsql.errors import EngineError


@dataclass(frozen=True)
class Extra:
    """The packages of ``pip install 'privsql[name]'`` that one purpose needs.

    ``modules``: what has to be there. ``does``: what for, and by what, as the sentence about a missing one begins.
    """

    name: str
    modules: tuple[str, ...]
    does: str

    @property
    def is_installed(self) -> bool:
        """Return True if all of them are installed; import nothing."""
        return all(find_spec(module) is not None for module in self.modules)

    def require_installed(self) -> None:
        """Raise ``EngineError`` where one is missing; called before long work begins."""
        if not self.is_installed:
            raise self.missing_error()

    def missing_error(self) -> EngineError:
        """Return the error where it is missing.

        >>> print(SPARK.missing_error())
        tables in Spark are read by pyspark, which is not installed; run: pip install 'privsql[spark]'
        """
        which = "which is not installed" if len(self.modules) == 1 else "which are not all installed"
        return EngineError(f"{self.does}, {which}; run: pip install 'privsql[{self.name}]'")


NOISE = Extra("dp", ("opendp",), "differentially private noise is drawn by OpenDP")
PICTURES = Extra("plot", ("altair", "vl_convert"), "pictures are drawn by altair and vl-convert")
PAGES = Extra("plot", ("jinja2",), "pages are made by Jinja2")
SERVING = Extra("serve", ("jinja2", "starlette", "uvicorn"), "the page is served by Jinja2, starlette and uvicorn")
SPARK = Extra("spark", ("pyspark",), "tables in Spark are read by pyspark")
POSTGRES = Extra("postgres", ("adbc_driver_postgresql",), "a Postgres server is read through its ADBC driver")
