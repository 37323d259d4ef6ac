"""Flows that are generated here, by name.

A flow is a dataclass of settings whose instances are sources (`biasbound.data.layout.Source`) and that lists its
named sizes; the first line of its docstring is its title. To add one: `FLOWS["waves"] = Waves`. A source is then made
by `biasbound.flows.flow.source("waves", "small", "valid", seed=1, points=64)`. Nothing heavy is imported before a flow
is asked for, so that --help is quick.
"""

from typing import Any

from biasbound.registry import home

FLOWS: dict[str, Any] = home(
    "flows",
    {
        "ks": "biasbound.flows.ks:KuramotoSivashinsky",
        "kolmogorov": "biasbound.flows.kolmogorov:KolmogorovFlow",
        "transonic": "biasbound.flows.transonic:TransonicCylinder",
    },
)
