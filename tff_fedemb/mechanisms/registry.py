"""Mechanisms by name, as flags, files and ledgers have them."""

from tff_fedemb import registry
from tff_fedemb.mechanisms import adaptive_gaussian
from tff_fedemb.mechanisms import adaptive_tree
from tff_fedemb.mechanisms import banded
from tff_fedemb.mechanisms import blt
from tff_fedemb.mechanisms import clip_only
from tff_fedemb.mechanisms import gaussian
from tff_fedemb.mechanisms import mechanism
from tff_fedemb.mechanisms import none
from tff_fedemb.mechanisms import secure_gaussian
from tff_fedemb.mechanisms import tree

# A new aggregator is one file and one line here; its fields become flags.
AGGREGATORS: registry.Registry[mechanism.MechanismConfig] = registry.Registry(
  mechanism.MechanismConfig,
  {
    "gaussian": gaussian.GaussianConfig,
    "tree": tree.TreeConfig,
    "blt": blt.BltConfig,
    "banded": banded.BandedConfig,
    "adaptive_gaussian": adaptive_gaussian.AdaptiveGaussianConfig,
    "adaptive_tree": adaptive_tree.AdaptiveTreeConfig,
    "secure_gaussian": secure_gaussian.SecureGaussianConfig,
    "clip_only": clip_only.ClipOnlyConfig,
    "none": none.NoneConfig,
  },
  kind="mechanism",
)
# Programs use it unless told otherwise.
DEFAULT = "gaussian"
