"""Rounds on a simulated clock: who is selected, who reports, what is released.

The protocol is that of Bonawitz et al. 2019, "Towards Federated Learning at
Scale: System Design": devices check in, the server selects more of them than
it needs, ends the round with the goal's last report or at a deadline, and
abandons it if too few have come by then.

A round is a function of the seed and of the rounds before. A run that continues
after an interruption plays them again, at milliseconds per round. The server
asks devices in a random order until enough are available. The time of a round
therefore does not grow with the population, and only participants take memory.
"""

import dataclasses
import math

import numpy as np

from tff_fedemb import checks
from tff_fedemb import config
from tff_fedemb import errors
from tff_fedemb.deployment import deployment as deployment_lib
from tff_fedemb.deployment import devices as devices_lib

# The server asks at least so many devices at a time.
_MIN_ASKED = 2048
# Once the server has asked so many devices for each one that it wants, it stops
# if the whole population cannot be expected to have enough for a round.
_ASKED_FOR_ONE = 1000
# After so many days without a released round, the simulation gives up.
_MAX_DAYS_WITHOUT_ROUND = 30
# Counter of the random orders; those in `devices` are smaller.
_ORDER = 100
# Participations of a user who never took part: their number, and the last one's
# round and end.
_NEVER = (0, -math.inf, -math.inf)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkOfRound(config.Config):
  """The work of a device in a round.

  Attributes:
    bytes_down: Bytes that it receives.
    bytes_up: Bytes that it sends.
    examples: Steps x batch size of its training.
  """

  bytes_down: int = config.field(minimum=0)
  bytes_up: int = config.field(minimum=0)
  examples: float = config.field(minimum=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundOutcome:
  """The outcome of a round; each selected device is counted once.

  Attributes:
    round_num: Number of the round among released rounds, from 0; an abandoned
      round has the number of the next released one.
    abandoned: Whether too few devices reported, so that nobody sees their sum.
    start_hours: Start of the selection, in simulated hours since training
      started.
    end_hours: End of the round, in the same hours.
    available_share: Share of the asked devices that were there.
    selected: Number of devices that were selected.
    dropped: Number of devices that failed before they trained.
    interrupted: Number of devices that left before they were done.
    late: Number of devices that were not done by the deadline, in a round that
      lasted until then.
    aborted: Number of devices that were not done when the goal had reported.
    reported: int64 slots in the order of their reports, at most as many as the
      goal.
    bytes_down: Bytes that all devices received.
    bytes_up: Bytes that all devices sent.
  """

  round_num: int
  abandoned: bool = True
  start_hours: float
  end_hours: float
  available_share: float
  selected: int = 0
  dropped: int = 0
  interrupted: int = 0
  late: int = 0
  aborted: int = 0
  reported: np.ndarray = dataclasses.field(
    default_factory=lambda: np.zeros(0, np.int64)
  )
  bytes_down: int = 0
  bytes_up: int = 0


def permute(
  places: np.ndarray,
  size: int,
  *,
  seed: int,
  counter: int,
) -> np.ndarray:
  """Returns the slots that have these places in a random order.

  A Feistel cipher of the smallest even number of bits that holds all slots is
  applied until the result is a slot (Black and Rogaway 2002, "Ciphers with
  Arbitrary Finite Domains"). All places together are a permutation, but only
  the places that you ask for are computed.

  Args:
    places: Integers in 0 ... size - 1, of any shape.
    size: Number of slots, at least 1.
    seed: Decides the order, together with the counter.
    counter: Number of the order, at least 0.

  Returns:
    Slots, int64, of the shape of the places.
  """
  half = max(math.ceil((size - 1).bit_length() / 2), 1)
  low_bits = np.uint64((1 << half) - 1)
  values = np.asarray(places).astype(np.uint64)
  left_out = np.arange(values.size)
  others = values.ravel()
  while left_out.size:
    left = others >> np.uint64(half)
    right = others & low_bits
    for step in range(4):
      drawn = devices_lib.draw_bits(right, _ORDER, counter, step, seed=seed)
      drawn &= low_bits
      left, right = right, left ^ drawn
    others = (left << np.uint64(half)) | right
    values.flat[left_out] = others
    is_outside = others >= size
    left_out = left_out[is_outside]
    others = others[is_outside]
  return values.astype(np.int64)


class Simulation:
  """Plays the rounds of a deployment, one after another.

  Attributes:
    deployment: Devices and server.
    devices: The devices, by slot.
    num_users: Size of the population.
    work: The work of a device in a round.
    report_goal: Number of reports that the server wants per round.
    min_separation: See `__init__`; in released rounds.
    max_participations: See `__init__`; None for no bound.
    seed: Seed of all draws.
  """

  def __init__(
    self,
    deployment: deployment_lib.Deployment,
    num_users: int,
    seed: int,
    work: WorkOfRound,
    *,
    report_goal: int,
    min_separation: int = 1,
    max_participations: int | None = None,
  ):
    """Initialises the simulation, before its first round.

    Args:
      deployment: Devices and server.
      num_users: Size of the population.
      seed: Seed of the devices and of the server's draws, at least 0.
      work: The work of a device in a round.
      report_goal: Number of reports that the server wants of a round.
      min_separation: Minimum number of rounds from one participation of a user
        to the next, which the server enforces. A participation is a report in a
        round that was released.
      max_participations: Maximum number of participations of a user, which the
        server enforces; None for no bound.

    Raises:
      errors.FieldError: If there are fewer users than the goal.
    """
    checks.check_integer("num_users", num_users, minimum=1)
    checks.check_integer(
      "report_goal", report_goal, minimum=1, maximum=num_users
    )
    self.deployment = deployment
    self.devices = devices_lib.Devices(deployment, seed)
    self.num_users = num_users
    self.work = work
    self.report_goal = report_goal
    share = deployment.server.min_report_share
    self._minimum = math.ceil(share * report_goal - 1e-9)
    self.min_separation = min_separation
    self.max_participations = max_participations
    self.seed = seed
    self._participants: dict[int, tuple[int, float, float]] = {}
    self._attempt = 0
    self._round_num = 0
    self._hours = 0.0
    self._last_release = 0.0
    self._next_start = 0.0

  def next_round(self) -> RoundOutcome:
    """Plays the next round, which the server may abandon.

    Returns:
      The outcome; slots that reported in a released round have participated.

    Raises:
      errors.DataError: If no round could be released for a month (30 days).
    """
    server = self.deployment.server
    start = max(self._hours, self._next_start)
    self._next_start = start + server.min_round_minutes / 60
    slots, share, wait = self._select(start)
    outcome = RoundOutcome(
      round_num=self._round_num,
      start_hours=start,
      end_hours=start + wait,
      available_share=share,
    )
    # The server sends the devices away if they are too few.
    if slots.size >= self._minimum:
      outcome = self._play(outcome, slots)
    self._attempt += 1
    self._hours = outcome.end_hours
    if not outcome.abandoned:
      end = outcome.end_hours
      for slot in outcome.reported.tolist():
        count, _, _ = self._participants.get(slot, _NEVER)
        self._participants[slot] = (count + 1, self._round_num, end)
      self._round_num += 1
      self._last_release = outcome.end_hours
    elif self._hours - self._last_release > 24 * _MAX_DAYS_WITHOUT_ROUND:
      raise errors.DataError(
        f"a deployment must have {self._minimum:,} reports in a round at times,"
        f" found no such round in {_MAX_DAYS_WITHOUT_ROUND} simulated days"
        f" after {self._round_num:,} rounds: have fewer clients in a round,"
        " more users, or let them take part sooner or more often."
      )
    return outcome

  def participations(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns who took part so far.

    Only reports in released rounds count.

    Returns:
      The slots of users, int64 `[n]`, ascending; how many released rounds each
      reported in, int64 `[n]`.
    """
    slots = sorted(self._participants)
    counts = [self._participants[slot][0] for slot in slots]
    return np.array(slots, np.int64), np.array(counts, np.int64)

  def _may_take_part(self, slots: np.ndarray, hours: float) -> np.ndarray:
    """Whether the server's bounds allow users in a round, bool `[n]`.

    `hours` is the start of the round in simulated hours.
    """
    found = [self._participants.get(slot, _NEVER) for slot in slots.tolist()]
    counts, last_rounds, last_hours = np.reshape(found, [-1, 3]).T
    allowed = hours - last_hours >= self.deployment.server.min_separation_hours
    allowed &= self._round_num - last_rounds >= self.min_separation
    if self.max_participations is not None:
      allowed &= counts < self.max_participations
    return allowed

  def _select(self, start: float) -> tuple[np.ndarray, float, float]:
    """Selects devices for a round.

    Args:
      start: Start of the selection, in simulated hours.

    Returns:
      Selected slots, int64; the share of the asked devices that is available;
      and the hours until the selection ends.
    """
    server = self.deployment.server
    num_users = self.num_users
    wanted = math.ceil(server.over_selection * self.report_goal - 1e-9)
    wanted = min(wanted, num_users)
    slots, share, asked = self._ask(wanted, start)
    found = slots.size
    if found >= wanted:
      # Check-ins are spread evenly, and the server waits for the last one that
      # it wants.
      wait = server.check_in_minutes * wanted * asked / (found * num_users)
    elif found < self._minimum:
      wait = server.selection_minutes
    else:
      # By then, every available device has checked in.
      wait = server.check_in_minutes
    return slots[:wanted], share, wait / 60

  def _ask(self, wanted: int, start: float) -> tuple[np.ndarray, float, int]:
    """Asks devices in a random order until enough may take part.

    Args:
      wanted: Number of devices to find.
      start: Start of the selection, in simulated hours.

    Returns:
      Slots that are available and may take part, int64, at times fewer or more
      than wanted; the share of those asked that are available; the number
      asked.
    """
    clock = start + self.deployment.server.start_hour
    size = max(2 * wanted, _MIN_ASKED)
    asked = there = found = 0
    chunks = []
    while asked < self.num_users and found < wanted:
      # Chance may have hidden three standard deviations of them.
      most = found + 3.0 * math.sqrt(found + 1.0)
      is_long = asked >= _ASKED_FOR_ONE * wanted
      if is_long and most * self.num_users < self._minimum * asked:
        break
      chunk = min(size, self.num_users - asked)
      slots = permute(
        np.arange(asked, asked + chunk),
        self.num_users,
        seed=self.seed,
        counter=self._attempt,
      )
      slots = slots[self.devices.is_there(slots, clock)]
      asked += chunk
      there += slots.size
      slots = slots[self._may_take_part(slots, start)]
      chunks.append(slots)
      found += slots.size
    return np.concatenate(chunks), there / asked, asked

  def _play(
    self,
    selection: RoundOutcome,
    slots: np.ndarray,
  ) -> RoundOutcome:
    """Plays a round of the selected devices, after the selection.

    Args:
      selection: Outcome so far; its `end_hours` is the end of the selection.
      slots: Selected devices, int64 `[n]`.

    Returns:
      The outcome of the round, which ends when the goal has reported, or at the
      deadline.
    """
    deadline = 60 * self.deployment.server.deadline_minutes
    dropped = self.devices.drops_out(slots, self._attempt)
    session = self.devices.session_seconds(slots, self._attempt)
    seconds = self.seconds_of_work(slots)
    finished = np.flatnonzero(~dropped & (seconds <= session))
    finished = finished[np.argsort(seconds[finished], kind="stable")]
    finished = finished[seconds[finished] <= deadline]
    reported = finished[: self.report_goal]
    is_full = reported.size == self.report_goal
    end = float(seconds[reported[-1]]) if is_full else deadline
    others = ~dropped
    others[reported] = False
    interrupted = others & (session < np.minimum(seconds, end))
    left = int(others.sum() - interrupted.sum())
    num_sent = reported.size if is_full else reported.size + left
    return dataclasses.replace(
      selection,
      end_hours=selection.end_hours + end / 3600,
      abandoned=reported.size < self._minimum,
      selected=slots.size,
      dropped=int(dropped.sum()),
      interrupted=int(interrupted.sum()),
      late=0 if is_full else left,
      aborted=left if is_full else 0,
      reported=slots[reported],
      bytes_down=self.work.bytes_down * int((~dropped).sum()),
      bytes_up=self.work.bytes_up * num_sent,
    )

  def seconds_of_work(self, slots: np.ndarray) -> np.ndarray:
    """Returns the seconds that devices take for a round, first byte to last.

    Download, training (three times a forward pass) and upload follow each
    other.

    Args:
      slots: Slots of the devices, int64 `[n]`.

    Returns:
      Seconds, float64 `[n]`; sessions and deadlines are not considered.
    """
    devices = self.devices
    work = self.work
    examples = devices.examples(slots, work.examples)
    milliseconds = devices.milliseconds_per_example(slots)
    seconds = 8e-6 * work.bytes_down / devices.download_mbps(slots)
    seconds += 3 * examples * milliseconds / 1000
    seconds += 8e-6 * work.bytes_up / devices.upload_mbps(slots)
    return seconds
