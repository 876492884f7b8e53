"""Reports of a round: a row of metrics, a progress bar, and lines to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
import zlib

from etils import epy
import numpy as np
import tqdm

with epy.lazy_imports():
  from tff_fedemb.records import metrics as metrics_lib
  from tff_fedemb.runtime import client_error

_NUM_REJECTED = "client_work/num_rejected_clients"
# TFF leaves out an update that is not finite.
_NON_FINITE = "finalizer/update_non_finite"


class RoundReports:
  """Reports of the rounds of one run."""

  def __init__(self, rounds: int, say: Callable[[str], None]):
    """Begins without a round.

    Args:
      rounds: Number of rounds of the run.
      say: Receives lines for the reader.
    """
    self._rounds, self._say = rounds, say
    self._shown: dict[str, str] = {}

  def describe(
    self,
    number: int,
    measured: Any,
    clients: Sequence[np.ndarray],
    client_ids: Sequence[str],
    skipped: Sequence[client_error.ClientError],
  ) -> dict[str, float]:
    """Returns the metrics of a round, and prints what was left out of it.

    Args:
      number: Number of the round, from 1.
      measured: Metrics of the process, nested.
      clients: Slots of each virtual client.
      client_ids: Identifiers of the virtual clients.
      skipped: Clients that the runtime skipped.

    Returns:
      The process's metrics by their flat names, with the numbers of skipped and
      accepted virtual clients and of users, and a checksum of the client ids.
    """
    report = metrics_lib.flatten(measured)
    rejected = len(skipped) + int(report.get(_NUM_REJECTED, 0))
    report[metrics_lib.NUM_SKIPPED_CLIENTS] = len(skipped)
    report[metrics_lib.NUM_ACCEPTED] = len(client_ids) - rejected
    report[metrics_lib.NUM_USERS] = sum(map(len, clients))
    # Two runs with the same checksums had the same virtual clients.
    joined = "\0".join(client_ids)
    report["participants/checksum"] = zlib.crc32(joined.encode())
    if skipped:
      self._say(
        f"round {number}: skipped {len(skipped)} of {len(client_ids)} virtual"
        f" clients; the first: {skipped[0]}"
      )
    if report.get(_NON_FINITE):
      self._say(
        f"WARNING: round {number}: the mean update is not finite and leaves the"
        " model as it was; its cost counts. Look at clip_norm."
      )
    bad = int(report.get(metrics_lib.NUM_SKIPPED_EXAMPLES, 0))
    if bad:
      self._say(
        f"round {number}: left out {bad} examples that cannot be decoded"
      )
    return report

  def show(
    self,
    progress: tqdm.tqdm,
    report: dict[str, float],
    rounds_done: int,
    wall_seconds: float,
  ) -> None:
    """Shows a round on the progress bar; prints a line for an evaluation.

    A line is printed if the round was evaluated. Recall and epsilon stay on the
    bar until the next evaluation.

    Args:
      progress: The bar.
      report: Metrics of the round.
      rounds_done: Number of rounds so far.
      wall_seconds: Seconds of these rounds.
    """
    shown = self._shown
    accepted = int(report[metrics_lib.NUM_ACCEPTED])
    rejected = int(report.get(_NUM_REJECTED, 0))
    # If no client was accepted, there is no loss to show: NaN, not 0.
    loss = np.nan
    if accepted:
      loss = report.get(metrics_lib.LOSS, np.nan)
    shown["loss"] = f"{loss:.3f}"
    shown["rejected"] = f"{rejected} of {accepted + rejected}"
    for name, value in report.items():
      if name.startswith(metrics_lib.RECALL_PREFIX):
        rate = name.removeprefix(metrics_lib.RECALL_PREFIX)
        shown[f"recall@{rate}"] = f"{value:.3f}"
    if metrics_lib.EPSILON in report:
      shown["epsilon"] = f"{report[metrics_lib.EPSILON]:.4g}"
      seconds = wall_seconds / rounds_done * (self._rounds - rounds_done)
      left = tqdm.tqdm.format_interval(seconds)
      facts = "  ".join(f"{name} {value}" for name, value in shown.items())
      self._say(f"round {rounds_done}/{self._rounds}  {facts}  {left} left")
    # Recall and epsilon stay on the bar until there are newer ones.
    progress.set_postfix(shown)
