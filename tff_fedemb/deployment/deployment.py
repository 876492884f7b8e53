"""Deployments, read from a file: devices, network and server.

A deployment is a YAML file that reads like a description. `presets/` holds some
by name, with the source of every value. The laws are from these papers:

* FLGo: Wang et al. 2023, "FLGo: A Fully Customizable Federated Learning
  Platform": diurnal availability.
* FedScale: Lai et al. 2022, "FedScale: Benchmarking Model and System
  Performance of Federated Learning at Scale": time of local training.
* Bonawitz et al. 2019, "Towards Federated Learning at Scale: System Design":
  the server, and how many devices come at night, drop out and are aborted.
* Xu et al. 2023, "Federated Learning of Gboard Language Models with
  Differential Privacy": a minimum time between two participations.
"""

from collections.abc import Mapping
import dataclasses
import os
import pathlib
import types
from typing import Any

import yaml

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors

PRESETS = ("ideal", "phones", "harsh")
_FOLDER = pathlib.Path(__file__).parent / "presets"
_INFINITE = float("inf")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Availability(config.Config):
  """When devices are available: idle, charging and on an unmetered network.

  The hour t of a user's own day is counted so that t = 6 is the best one. A
  device is available then with probability level x (amplitude sin(2 pi t / 24)
  + base), cut to [0, 1] (FLGo). The level is lognormal over the devices.

  Attributes:
    time_zones: Weights by hours ahead of UTC, in [-12, 14]; any positive unit.
    base: Probability at level 1, on average over a day.
    amplitude: Swing of a day around the base, at level 1.
    peak_hour: Local hour at which most devices are there.
    habit_sigma_hours: Standard deviation of a user's own hours around those of
      the time zone.
    level_median: Median of the levels.
    level_sigma: Standard deviation of the levels' logarithm.
    session_minutes: Mean of the exponential time for which a device stays;
      infinity if it never leaves.
  """

  time_zones: Mapping[float, float]
  base: float = config.field(minimum=0, maximum=1)
  amplitude: float = config.field(minimum=0, maximum=1)
  peak_hour: float = config.field(2.0, minimum=0, below=24)
  habit_sigma_hours: float = config.field(0.0, minimum=0, maximum=24)
  level_median: float = config.field(1.0, above=0)
  level_sigma: float = config.field(0.0, minimum=0, maximum=5)
  session_minutes: float = config.field(_INFINITE, above=0, maximum=_INFINITE)

  def __post_init__(self):
    """Makes `time_zones` read-only, with hours as numbers.

    Raises:
      errors.FieldError: If there is no time zone, hours are outside of [-12,
        14], a weight is not positive, or another field is out of its range.
    """
    super().__post_init__()
    # JSON has texts for keys.
    zones = {float(hours): each for hours, each in self.time_zones.items()}
    if not zones:
      raise errors.FieldError(
        "time_zones", "be weights by hours ahead of UTC", "none"
      )
    for hours, weight in zones.items():
      checks.check_number("time_zones", hours, minimum=-12, maximum=14)
      checks.check_number(f"time_zones.{hours:g}", weight, above=0)
    # Read-only: values that were checked must not change later.
    object.__setattr__(self, "time_zones", types.MappingProxyType(zones))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute(config.Config):
  """Duration of local training (FedScale).

  Seconds are 3 x examples x milliseconds_per_example / 1000: a forward pass is
  one third, a backward pass two thirds.

  Attributes:
    milliseconds_per_example: Median over the devices of a forward pass.
    sigma: Standard deviation of its logarithm.
    equal_work: Whether every device trains on the same number of examples, or
      pads its time to that of the most. Then a user's data do not decide
      whether their device is late or lost.
    examples_sigma: Standard deviation of the logarithm of a user's number of
      examples, whose median is the round's; 0 with equal_work.
  """

  milliseconds_per_example: float = config.field(minimum=0)
  sigma: float = config.field(0.0, minimum=0, maximum=5)
  equal_work: bool = True
  examples_sigma: float = config.field(0.0, minimum=0, maximum=5)

  def __post_init__(self):
    """Checks that `examples_sigma` is 0 with equal work.

    Raises:
      errors.FieldError: If it is not, or a field is out of its range.
    """
    super().__post_init__()
    if self.equal_work and self.examples_sigma:
      raise errors.FieldError(
        "examples_sigma", "be 0 with equal_work", self.examples_sigma
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network(config.Config):
  """Speed at which a model travels.

  Attributes:
    download_mbps: Median over the devices, in Mbit/s; infinity takes no time.
    download_sigma: Standard deviation of its logarithm.
    upload_mbps: Median over the devices, in Mbit/s; infinity takes no time.
    upload_sigma: Standard deviation of its logarithm.
  """

  download_mbps: float = config.field(_INFINITE, above=0, maximum=_INFINITE)
  download_sigma: float = config.field(0.0, minimum=0, maximum=5)
  upload_mbps: float = config.field(_INFINITE, above=0, maximum=_INFINITE)
  upload_sigma: float = config.field(0.0, minimum=0, maximum=5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server(config.Config):
  """The server's rules for a round (Bonawitz et al. 2019).

  The server selects over_selection times the report goal among the devices that
  check in. It ends the round as soon as the goal has reported, or at the
  deadline, and releases the round if enough devices have reported. It rejects
  later reports.

  Attributes:
    over_selection: Devices selected / report goal.
    deadline_minutes: Maximum time from selection to the end of a round.
    min_report_share: Share of the report goal; with fewer reports a round is
      abandoned, and nobody sees its sum.
    check_in_minutes: Time between two check-ins that pace steering asks of a
      device that is there.
    selection_minutes: How long the server waits for enough check-ins before it
      abandons a round.
    min_round_minutes: Minimum time from the start of a round to that of the
      next.
    min_separation_hours: Minimum time from one participation of a user to the
      next, on the clock.
    min_separation: The same in released rounds [a quarter of those in which the
      report goal uses up the users].
    max_participations: Maximum number of rounds of a user [as many as
      min_separation allows].
    start_hour: Hour of the day at which training starts, in UTC.
  """

  over_selection: float = config.field(1.0, minimum=1, maximum=10)
  deadline_minutes: float = config.field(above=0)
  min_report_share: float = config.field(1.0, above=0, maximum=1)
  check_in_minutes: float = config.field(0.0, minimum=0)
  selection_minutes: float = config.field(30.0, above=0)
  min_round_minutes: float = config.field(0.0, minimum=0)
  min_separation_hours: float = config.field(0.0, minimum=0)
  min_separation: int | None = config.field(None, minimum=1)
  max_participations: int | None = config.field(None, minimum=1)
  start_hour: float = config.field(0.0, minimum=0, below=24)

  def __post_init__(self):
    """Checks that selection is not shorter than the time between check-ins.

    Raises:
      errors.FieldError: If it is, or a field is out of its range.
    """
    super().__post_init__()
    if self.selection_minutes < self.check_in_minutes:
      raise errors.FieldError(
        "selection_minutes",
        f"be at least check_in_minutes, {self.check_in_minutes:g}",
        f"{self.selection_minutes:g}",
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployment(config.Config):
  """Devices, and the server that trains on them.

  Attributes:
    description: Meaning of the deployment, in a sentence.
    availability: When devices are there.
    compute: How long they train.
    network: How fast they send and receive.
    dropout_rate: Share of the selected devices that fail before they train, for
      instance because the network does.
    server: How rounds are run.
  """

  description: str
  availability: Availability
  compute: Compute
  network: Network
  dropout_rate: float = config.field(0.0, minimum=0, below=1)
  server: Server

  def to_json(self) -> dict[str, Any]:
    """Returns all values by name, defaults too, as JSON can hold them.

    Returns:
      Nested dictionaries that `parse` accepts; infinity is "inf".
    """
    return _plain(self)


def _plain(value: Any) -> Any:
  """A value, or the values of a part by name, as JSON can hold them.

  Keys of mappings become texts, and infinity becomes "inf".
  """
  if isinstance(value, config.Config):
    names = [spec.name for spec in config.specs(type(value))]
    return {name: _plain(getattr(value, name)) for name in names}
  if isinstance(value, Mapping):
    return {f"{key:g}": weight for key, weight in value.items()}
  return str(value) if value == _INFINITE else value


def load(name_or_path: str | os.PathLike[str]) -> Deployment:
  """Reads a deployment.

  Args:
    name_or_path: One of `PRESETS`, or the path of a YAML file.

  Returns:
    The deployment, checked; missing values have their defaults.

  Raises:
    errors.FieldError: If there is no such file, it is not a YAML file, or a
      value is unknown, missing or out of its range.
  """
  path = pathlib.Path(name_or_path)
  if str(name_or_path) in PRESETS:
    path = _FOLDER / f"{name_or_path}.yaml"
  with errors.as_field_error(
    "deployment", f"be {', '.join(PRESETS)} or a YAML file", name_or_path
  ):
    return parse(yaml.safe_load(path.read_text(encoding="utf-8")))


def parse(values: Any) -> Deployment:
  """Creates a deployment from values by name, as a file or `to_json` has them.

  Args:
    values: Mappings, nested as the classes are; "inf" is infinity.

  Returns:
    The deployment, checked.

  Raises:
    errors.FieldError: As `load`.
  """
  return _create(Deployment, values)


def _create(config_class: type[config.Config], values: Any) -> Any:
  """Creates a part and the parts in it from values by name.

  Raises:
    errors.FieldError: If a value is unknown, missing or out of its range.
  """
  name = config_class.__name__.lower()
  # Python's own error says which value is unknown or missing.
  with errors.as_field_error(name, "have its values by name", repr(values)):
    fields = dict(values)
    for spec in config.specs(config_class):
      if issubclass(spec.type, config.Config):
        fields[spec.name] = _create(spec.type, fields.get(spec.name, {}))
      elif fields.get(spec.name) == "inf":
        fields[spec.name] = _INFINITE
    return config_class(**fields)
