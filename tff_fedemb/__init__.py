"""User-level private image embeddings in TensorFlow Federated (DP-FedEmb).

Xu et al., "Learning to Generate Image Embeddings with User-level Differential
Privacy", CVPR 2023.

  import tff_fedemb as fe

  task = fe.ArrayTask(images, labels, users, test=(test_images, test_labels))
  spec = fe.RunSpec(
    task=task,
    participation=fe.Poisson(users_per_round=512),
    mechanism=fe.Gaussian(noise_multiplier=0.8, clip_norm=0.1),
    rounds=60,
  )
  print(fe.plan(spec))
  result = fe.train(spec, run_dir="runs/first")

A name is imported when it is first used: neither `import tff_fedemb` nor making
a `RunSpec` loads TensorFlow.

The parts of a run, each a frozen dataclass:

* users and data: `ArrayTask`, `from_client_data`, `partition_by_dirichlet` for
  data without users, and `create_task` by name;
* algorithm: `FedEmb` (the default), `FedAvg`, `Contrastive` and `Centralized`,
  with a `Backbone`, a head such as `CosineHead`, and `LocalTraining`;
* participation, who takes part in a round: `Poisson`, `FixedSize`,
  `CyclicPoisson`, `BallsInBins`, `RandomAllocation` and `MinSeparation`;
* mechanism, how updates are clipped and noised: `Gaussian`, `AdaptiveGaussian`,
  `SecureGaussian`, `Tree`, `AdaptiveTree`, `Banded`, `Blt` and `ClipOnly`.

`suggest` chooses settings by counting users, `plan` tells cost and time before
training, `epsilon` accounts without a task, `train` returns a `Result`, and
`export` converts its model for phones. An error that you can mend is a
`FieldError` or a `DataError`.
"""

from etils import epy

from tff_fedemb import imports

imports.prepare()

with epy.lazy_api_imports(globals()):
  from tff_fedemb.algorithms.centralized import Centralized
  from tff_fedemb.algorithms.contrastive import Contrastive
  from tff_fedemb.algorithms.fedavg import FedAvg
  from tff_fedemb.algorithms.fedemb import FedEmb
  from tff_fedemb.algorithms.local_training import LocalTraining
  from tff_fedemb.algorithms.server_optimizers import SgdMomentum
  from tff_fedemb.data.dirichlet_partition import partition_by_dirichlet
  from tff_fedemb.errors import DataError
  from tff_fedemb.errors import FieldError
  from tff_fedemb.mechanisms.adaptive_gaussian import (
    AdaptiveGaussianConfig as AdaptiveGaussian,
  )
  from tff_fedemb.mechanisms.adaptive_tree import (
    AdaptiveTreeConfig as AdaptiveTree,
  )
  from tff_fedemb.mechanisms.banded import BandedConfig as Banded
  from tff_fedemb.mechanisms.blt import BltConfig as Blt
  from tff_fedemb.mechanisms.clip_only import ClipOnlyConfig as ClipOnly
  from tff_fedemb.mechanisms.gaussian import GaussianConfig as Gaussian
  from tff_fedemb.mechanisms.mechanism import MechanismConfig
  from tff_fedemb.mechanisms.secure_gaussian import (
    SecureGaussianConfig as SecureGaussian,
  )
  from tff_fedemb.mechanisms.strategy import Workload
  from tff_fedemb.mechanisms.tff_aggregator import build_aggregator
  from tff_fedemb.mechanisms.tree import TreeConfig as Tree
  from tff_fedemb.models.backbones import BackboneConfig as Backbone
  from tff_fedemb.models.heads import ArcFaceHead
  from tff_fedemb.models.heads import ClassCodesHead
  from tff_fedemb.models.heads import ContrastHead
  from tff_fedemb.models.heads import CosineHead
  from tff_fedemb.models.heads import LinearHead
  from tff_fedemb.participation.balls_in_bins import BallsInBins
  from tff_fedemb.participation.cyclic_poisson import CyclicPoisson
  from tff_fedemb.participation.fixed_size import FixedSize
  from tff_fedemb.participation.min_separation import MinSeparation
  from tff_fedemb.participation.poisson import Poisson
  from tff_fedemb.participation.random_allocation import RandomAllocation
  from tff_fedemb.planning.planning import epsilon
  from tff_fedemb.runtime import RuntimeConfig as Runtime
  from tff_fedemb.serving.lite_export import export
  from tff_fedemb.spec.array_task import ArrayTask
  from tff_fedemb.spec.array_task import from_client_data
  from tff_fedemb.spec.spec import Evaluation
  from tff_fedemb.spec.spec import RunSpec
  from tff_fedemb.spec.suggestions import suggest
  from tff_fedemb.spec.task import Task
  from tff_fedemb.spec.task import TaskSource
  from tff_fedemb.spec.task import create_task
  from tff_fedemb.training.plan import plan
  from tff_fedemb.training.result import Result
  from tff_fedemb.training.train import train
