"""A mechanism made of another one: other parameters and another name, everything else handed on.

What a newcomer's package looks like from outside, as little as that can be.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from privsql.mechanisms import contract

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.mechanisms.contract import Mechanism, Proposal
    from privsql.model.manifest import CheckedRelease, Manifest
    from privsql.model.parameters import Parameters

BY_PARAMETERS = contract.BY_PARAMETERS | {"source_checks": 2, "demand": 1}


def thin(of: Mechanism[Any], parameters: type[Parameters]) -> Mechanism[Any]:
    """The mechanism ``of`` under the name and with the parameters of another."""
    kind = str(parameters.model_fields["kind"].default)

    def asked(given: Parameters) -> Parameters:
        return of.parameters.model_validate({**given.model_dump(mode="json"), "kind": of.kind})

    def told(manifest: Manifest) -> Manifest:
        stated = {**manifest.parameters, "kind": of.kind}
        return manifest.model_copy(update={"mechanism": of.kind, "parameters": stated})

    def handed(name: str, *given: Any) -> Any:
        arguments = list(given)
        if name in contract.BY_MANIFEST:
            arguments[contract.BY_MANIFEST[name]] = told(arguments[contract.BY_MANIFEST[name]])
        if name in BY_PARAMETERS:
            arguments[BY_PARAMETERS[name]] = asked(arguments[BY_PARAMETERS[name]])
        if name in contract.BY_RELEASE:
            release: CheckedRelease[Any, Any] = arguments[0]
            arguments[0] = replace(release, manifest=told(release.manifest), params=asked(release.params))
        return getattr(of, name)(*arguments)

    def propose(*given: Any) -> Proposal:
        found = of.propose(*given)
        return replace(found, parameters=found.parameters | {"kind": kind})

    handing = contract.BY_MANIFEST | BY_PARAMETERS | contract.BY_RELEASE
    members: dict[str, Callable[..., Any]] = {name: partial(handed, name) for name in handing}
    return replace(of, parameters=parameters, propose=propose, **members)
