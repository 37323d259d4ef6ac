"""A study as one frozen value: data, network, search, training, what to roll out and to score.

Presets are YAML files, named dataset-scale (`ks-demo`); any field can be given on the command line as
`--section.field value`, and a file of one's own with `--config`. An unknown or ill-typed field is refused with the
nearest name that exists. Nothing here imports torch.
"""

from .parsing import ConfigParser, config_parser, made, plain, presets, read_config, to_yaml
from .sections import (
    GENERATED,
    SECTIONS,
    BaselineConfig,
    Config,
    DataConfig,
    EvaluateConfig,
    FinetuneConfig,
    NetworkConfig,
    RolloutConfig,
    SearchConfig,
    TrainConfig,
)

__all__ = [
    "GENERATED",
    "SECTIONS",
    "BaselineConfig",
    "Config",
    "ConfigParser",
    "DataConfig",
    "EvaluateConfig",
    "FinetuneConfig",
    "NetworkConfig",
    "RolloutConfig",
    "SearchConfig",
    "TrainConfig",
    "config_parser",
    "made",
    "plain",
    "presets",
    "read_config",
    "to_yaml",
]
