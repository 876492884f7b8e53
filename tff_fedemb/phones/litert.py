"""Runs each client of a round in a process of its own, by LiteRT.

The clients are programs without TensorFlow (`tflite_client`) that read files
and write one, as phones would. They run the file that `export` writes for
phones. Aggregation, noise and resuming are those of `in_process`: the clients
of its process are the deltas that came in.

This process reads the data and draws the head and the order of a client, by the
code of `in_process`, so that both runtimes train the same clients.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_fedemb import errors
from tff_fedemb import runtime as runtime_lib
from tff_fedemb.algorithms import learning_process
from tff_fedemb.phones import client_file
from tff_fedemb.phones import deltas
from tff_fedemb.phones import simulated_phones
from tff_fedemb.phones import tensor_files
from tff_fedemb.runtime import base
from tff_fedemb.runtime import client_error
from tff_fedemb.runtime import client_fold
from tff_fedemb.runtime import in_process
from tff_fedemb.runtime import secure_sums

_LITERT = "ai_edge_litert"
_INSTALL = "`make setup LITE=1` installs it, or `pip install ai-edge-litert`."


class PhoneProcess(tff.learning.templates.LearningProcess):
  """The learning process of a run whose clients are phones.

  Its clients are deltas; the runtime makes them with the attributes.

  Attributes:
    file: File that a client runs.
    create_dataset: Maps a virtual client's identifier to its data set.
  """

  def __init__(
    self,
    build: Callable[..., tff.learning.templates.LearningProcess],
    file: client_file.ClientFile,
    create_dataset: Callable[[tf.Tensor], tf.data.Dataset],
  ):
    """Builds the process.

    Args:
      build: Builds the algorithm, given example_type and wrap_client_update_fn.
      file: File that a client runs.
      create_dataset: Maps a virtual client's identifier to its data set.
    """
    of_updates = build(
      example_type=simulated_phones.UPDATE_TYPE,
      # The update that came in takes the place of a client's computation.
      wrap_client_update_fn=lambda _: simulated_phones.read_update,
    )
    process = tff.simulation.compose_dataset_computation_with_learning_process(
      simulated_phones.update_dataset, of_updates
    )
    super().__init__(
      process.initialize,
      process.next,
      process.get_model_weights,
      process.set_model_weights,
    )
    self.file = file
    self.create_dataset = create_dataset


class TfliteRuntime(in_process.InProcessRuntime):
  """Runs clients by LiteRT; see the module's docstring.

  A delta that `deltas.Inbox` refuses is left out of the sum, whatever
  `on_client_error` says, like a client that sends none; `skipped_clients` has
  the reason. With `on_client_error=skip` a client whose process is killed is
  left out, too: a phone that dies sends none. Give the machine the memory that
  all clients need: none of them may decide which one is killed.

  Attributes:
    peak_memory_bytes: Largest memory of a client's process so far.
    delta_counts: Deltas of the last round, as `deltas.Inbox.counts`.
  """

  def __init__(self, config: runtime_lib.RuntimeConfig):
    """Creates a runtime without a process.

    Args:
      config: Settings; `concurrent_clients` run at a time.

    Raises:
      errors.FieldError: If LiteRT is not installed.
    """
    if importlib.util.find_spec(_LITERT) is None:
      raise errors.FieldError(
        "runtime", "be another where LiteRT is missing", "tflite", _INSTALL
      )
    super().__init__(config)
    self.peak_memory_bytes = 0
    self.delta_counts: Mapping[str, int] = {}
    self._directory = tempfile.TemporaryDirectory(prefix="tff_fedemb_phones_")
    self._folder = pathlib.Path(self._directory.name)
    self._phones: PhoneProcess | None = None
    self._draw: Any = None
    # Number and weights of the current round.
    self._round: tuple[int, Any] = (0, None)

  def initialize(
    self,
    process: tff.templates.IterativeProcess,
  ) -> in_process.FlatState:
    """Compiles the process, and writes the file that clients run.

    Args:
      process: A `PhoneProcess`.

    Returns:
      The initial state.

    Raises:
      errors.FieldError: If the process is another one, or as in the base class.
    """
    if not isinstance(process, PhoneProcess):
      raise errors.FieldError(
        "runtime", "be another for a process that was not made for it", "tflite"
      )
    state = super().initialize(process)
    if self._phones is not process:
      self._phones = process
      (self._folder / "training.tflite").write_bytes(process.file.content)

      @tf.function(
        input_signature=[
          tf.TensorSpec([], tf.string),
          tf.TensorSpec([], tf.int32),
        ],
        autograph=False,
      )
      def draw(
        client_id: tf.Tensor, round_num: tf.Tensor
      ) -> simulated_phones.Drawn:
        dataset = process.create_dataset(client_id)
        return simulated_phones.draw(process.file, dataset, round_num)

      self._draw = draw
    return state

  def next(
    self,
    state: in_process.FlatState,
    client_ids: Sequence[str],
  ) -> tuple[in_process.FlatState, Any]:
    """Runs one round: `tflite_client` for each client, then the server here.

    The number of the round comes from the state, and so does the model that is
    written for the clients. Arguments, result and errors are those of the base
    class.
    """
    structure = self.structured_state(state)
    round_num = int(structure.client_work)
    self._round = (round_num, structure.global_model_weights)
    return super().next(state, client_ids)

  def _fold_clients(
    self,
    prepared: Sequence[Any],
    client_ids: Sequence[str],
  ) -> tuple[list[Any], secure_sums.RoundTotal]:
    """Runs clients and folds the deltas that are accepted, in their order."""
    file = base.check_initialized(self._phones).file
    round_num, weights = self._round
    words = {deltas.SPEC: file.spec_digest, deltas.ROUND: str(round_num)}
    inputs = file.name_inputs(weights, round_num)
    (self._folder / "model").write_bytes(tensor_files.pack(inputs, words))
    inbox = deltas.Inbox(
      file.delta_shapes,
      clip_norm=file.clip_norm,
      spec_digest=file.spec_digest,
      round_num=round_num,
      devices=client_ids,
    )
    self.delta_counts = inbox.counts
    updates = []
    with futures.ThreadPoolExecutor(self.concurrent_clients) as threads:
      waiting = collections.deque()
      for number, client_id in enumerate(client_ids):
        waiting.append(
          threads.submit(self._run_client, str(number), client_id, round_num)
        )
      try:
        for client_id in client_ids:
          # A future holds its message: both are freed once it is received.
          update = self._receive(inbox, client_id, waiting.popleft())
          if update is not None:
            updates.append(update)
      finally:
        # An error ends the round: clients that have not begun need not run.
        for future in waiting:
          future.cancel()
    return self._fold(prepared, updates, self._skip_fn)

  def _receive(
    self,
    inbox: deltas.Inbox,
    client_id: str,
    future: futures.Future[tuple[bytes, learning_process.ClientUpdate]],
  ) -> bytes | None:
    """Waits for a client; returns its encoded update if it is accepted.

    Args:
      inbox: The deltas of the round; a delta that it refuses is skipped.
      client_id: The client.
      future: Its message and counts, as `_run_client` returns them.

    Returns:
      The encoded update; `None` if the client is left out.

    Raises:
      client_error.ClientError: If the client failed, and is not left out.
    """
    try:
      message, counts = future.result()
    except Exception as error:
      client_fold.leave_out(client_id, error, self._skip_fn)
      return None
    try:
      delta = inbox.receive(client_id, message)
    except ValueError as error:
      self.skipped_clients.append(client_error.ClientError(client_id, error))
      return None
    update = counts._replace(delta=tuple(delta))
    return simulated_phones.encode_update(update)

  def _run_client(
    self,
    name: str,
    client_id: str,
    round_num: int,
  ) -> tuple[bytes, learning_process.ClientUpdate]:
    """Runs a client; returns the delta that it sent, and its counts.

    Args:
      name: Name of the client's files in the runtime's folder.
      client_id: Identifier of the virtual client.
      round_num: The round, from 0.

    Raises:
      client_error.KilledError: If a signal ends its process.
      RuntimeError: If its process fails.
    """
    drawn = self._draw(client_id, round_num)
    inputs = {key: value.numpy() for key, value in drawn.inputs.items()}
    holds = self._folder / f"{name}.client"
    delta = self._folder / f"{name}.delta"
    stays = self._folder / f"{name}.stays"
    holds.write_bytes(tensor_files.pack(inputs, {}))
    program = self._folder / "training.tflite"
    model = self._folder / "model"
    _run_program([program, model, holds, delta, stays])
    facts = json.loads(stays.read_text())
    peak = facts["peak_memory_bytes"]
    self.peak_memory_bytes = max(self.peak_memory_bytes, peak)
    counts = learning_process.ClientUpdate(
      (),
      num_examples=int(np.sum(inputs["order"] >= 0)),
      num_classes=int(drawn.num_classes),
      num_correct=int(facts[client_file.NUM_CORRECT]),
      num_skipped_examples=int(drawn.num_skipped),
      loss_sum=float(facts[client_file.LOSS_SUM]),
    )
    return delta.read_bytes(), counts

  def close(self) -> None:
    """Ends what the base class does, and deletes the clients' files."""
    super().close()
    if not self._is_in_fork:
      self._directory.cleanup()


def _run_program(paths: Sequence[pathlib.Path]) -> None:
  """Runs `tflite_client` in a process of its own.

  The last line of its standard error is in the message, all of it in a note.

  Args:
    paths: Arguments of `tflite_client.main`.

  Raises:
    client_error.KilledError: If a signal ends it.
    RuntimeError: If it fails.
  """
  program = [sys.executable, "-m", "tff_fedemb.phones.tflite_client"]
  ended = subprocess.run(
    program + list(map(os.fspath, paths)),
    env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    check=False,
  )
  if not ended.returncode:
    return
  kind = RuntimeError
  how = f"with status {ended.returncode}"
  if ended.returncode < 0:
    number = -ended.returncode
    kind = client_error.KilledError
    how = f"by signal {number}"
    with contextlib.suppress(ValueError):
      how = f"by {signal.Signals(number).name}"
  said = ended.stderr.decode(errors="backslashreplace").strip()
  lines = said.splitlines() or ["nothing on standard error"]
  error = kind(f"its process ended {how}: {lines[-1]}")
  error.add_note(said)
  raise error
