"""One client of `runtime=tflite`: files in, a clipped delta out.

It runs the signature `train` of a training.tflite by LiteRT, as a phone would,
and does not import TensorFlow. It reads that file, the weights of the round and
the client's own tensors. It writes the delta, which a phone would send, and
facts that would stay on the phone, which the simulation needs for its metrics.
"""

from collections.abc import Sequence
import json
import pathlib
import sys
from typing import Any

from ai_edge_litert import interpreter as litert
import numpy as np

from tff_fedemb.phones import tensor_files

_STATUS = pathlib.Path("/proc/self/status")


def _peak_memory_bytes() -> int:
  """Returns the peak memory; `resource` would count the parent's, too.

  Returns:
    Bytes, read from Linux's `/proc/self/status`; 0 if it has no such line.
  """
  for line in _STATUS.read_text().splitlines():
    if line.startswith("VmHWM:"):
      return 1024 * int(line.split()[1])
  return 0


def main(argv: Sequence[str]) -> None:
  """Trains a client.

  A client without images sends a delta of zeros.

  Args:
    argv: The program, and five paths: to read the training.tflite, the weights
      and the client's own tensors, and to write the delta and the facts.

  Raises:
    OSError: If a file cannot be read or written.
    ValueError: If a file of tensors is damaged.
  """
  program, model, client, delta, stays = map(pathlib.Path, argv[1:])
  weights, words = tensor_files.unpack(model.read_bytes())
  holds, _ = tensor_files.unpack(client.read_bytes())
  interpreter = litert.Interpreter(str(program), num_threads=1)
  train = interpreter.get_signature_runner("train")
  if len(holds["images"]):
    outputs = train(**weights, **holds)
  else:
    outputs = {}
    for name, detail in train.get_output_details().items():
      outputs[name] = np.zeros(detail["shape"], np.float32)
  changes = {}
  facts: dict[str, Any] = {}
  for name, value in outputs.items():
    if name in weights:
      changes[name] = value
    else:
      facts[name] = value.item()
  delta.write_bytes(tensor_files.pack(changes, words))
  facts["peak_memory_bytes"] = _peak_memory_bytes()
  facts["without_tensorflow"] = "tensorflow" not in sys.modules
  stays.write_text(json.dumps(facts))


if __name__ == "__main__":
  main(sys.argv)
