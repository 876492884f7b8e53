"""The registry of algorithms, by the names that flags and files use.

`centralized` and `contrastive` are baselines without privacy.
"""

from tff_fedemb import registry
from tff_fedemb.algorithms import algorithm
from tff_fedemb.algorithms import centralized
from tff_fedemb.algorithms import contrastive
from tff_fedemb.algorithms import fedavg
from tff_fedemb.algorithms import fedemb

# To add an algorithm, write one file and add one line here.
ALGORITHMS: registry.Registry[algorithm.Algorithm] = registry.Registry(
  algorithm.Algorithm,
  {
    "fedemb": fedemb.FedEmb,
    "fedavg": fedavg.FedAvg,
    "centralized": centralized.Centralized,
    "contrastive": contrastive.Contrastive,
  },
)
