"""A grid of specifications: every combination of values of some keys of ``[mechanism]``, each a specification."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

from privsql.calls import exactly, known
from privsql.errors import UsageError
from privsql.mechanisms.registry import parameters
from privsql.source.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Iterator

SECTION = "mechanism."
OPENING, CLOSING, QUOTES = "[{", "]}", "\"'"
Grid = Mapping[str, Sequence[Any]] | Sequence[str]


@dataclass(frozen=True)
class Combination:
    """A specification with its name; ``values``: those of the grid, as texts; ``refused``: why there can't be one."""

    name: str
    spec: Spec
    values: dict[str, str] = field(default_factory=dict)
    refused: str | None = None


def combinations(specs: Sequence[tuple[str, Spec]], given: Grid | None) -> list[Combination]:
    """Every specification with every combination of those values that its mechanism has keys for.

    ``given``: values by key, "threshold" or "mechanism.threshold", or texts such as "threshold=1/4,1/8". Raises
    ``UsageError`` for a key that no specification has.
    """
    wanted = {} if given is None else _read(given)
    owned = [set(parameters(spec.mechanism.kind).model_fields) for _, spec in specs]
    known([key.partition(".")[0] for key in wanted], set().union(*owned), "the grid: a mechanism")
    return [
        combination
        for (name, spec), keys in zip(specs, owned, strict=True)
        for combination in _of(name, spec, {key: wanted[key] for key in wanted if key.partition(".")[0] in keys})
    ]


def _of(name: str, spec: Spec, wanted: Mapping[str, Sequence[Any]]) -> Iterator[Combination]:
    if not wanted:
        yield Combination(name, spec)
        return
    for values in product(*wanted.values()):
        chosen = dict(zip(wanted, values, strict=True))
        texts = {key: str(value) for key, value in chosen.items()}
        called = ", ".join([name, *(f"{key}={text}" for key, text in texts.items())])
        try:
            yield Combination(called, _with(spec, chosen), texts)
        except UsageError as error:
            yield Combination(called, spec, texts, str(error))


def _with(spec: Spec, chosen: Mapping[str, Any]) -> Spec:
    """A specification with other values of its mechanism; ``UsageError`` if it can't have them."""
    raw: dict[str, Any] = spec.mechanism.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    for key, value in chosen.items():
        *path, last = key.split(".")
        place = raw
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise UsageError(f"the grid's {key}: {part} is no table of keys")
        place[last] = value
    parts = {one: getattr(spec, one) for one in Spec.model_fields}
    return Spec.model_validate(parts | {"mechanism": {"kind": spec.mechanism.kind, **raw}})


def _read(given: Grid) -> dict[str, list[Any]]:
    """Values by key, each once, the keys without their section."""
    pairs = given.items() if isinstance(given, Mapping) else (_parted(text) for text in given)
    found: dict[str, list[Any]] = {}
    for name, values in pairs:
        key = name.strip().removeprefix(SECTION)
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise UsageError(f"the grid's {key}: give a list of values")
        if key in found:
            raise UsageError(f"the grid has {key} twice")
        found[key] = list({str(one): one for one in exactly({key: list(values)})[key]}.values())
        if not found[key]:
            raise UsageError(f"the grid's {key} has no value")
    return found


def _parted(text: str) -> tuple[str, list[Any]]:
    """The key and the values of "key=value,value"; a comma within brackets or quotes parts nothing.

    >>> _parted("mechanism.threshold=1/4, {default = 0.1, HIV = 0.05}")
    ('mechanism.threshold', ['1/4', {'default': Decimal('0.1'), 'HIV': Decimal('0.05')}])
    """
    key, equals, rest = text.partition("=")
    if not (equals and key.strip()):
        raise UsageError(f"the grid's {text!r}: write key=value,value")
    parts, depth, quote = [""], 0, ""
    for sign in rest:
        if sign == "," and not depth and not quote:
            parts.append("")
            continue
        if sign in QUOTES and quote in ("", sign):
            quote = "" if quote else sign
        elif not quote:
            depth += (sign in OPENING) - (sign in CLOSING)
        parts[-1] += sign
    return key.strip(), [_value(part.strip()) for part in parts if part.strip()]


def _value(text: str) -> Any:
    """What TOML makes of a text, or the text."""
    try:
        found = tomllib.loads(f"value = {text}", parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text
