"""One client of `runtime=tflite`: files in, a clipped delta out.

Runs the signature `train` of a training.tflite by LiteRT, as a phone would.
TensorFlow is not imported. In: the file, the weights of the round, and what the
client holds. Out: the delta, which is what a phone sends; and what stays on a
phone, which the simulation reads for its metrics.
"""

from collections.abc import Sequence
import json
import pathlib
import sys

from ai_edge_litert import interpreter as litert
import numpy as np

from tff_fedemb.phones import tensor_files

_STATUS = pathlib.Path("/proc/self/status")


def _peak_memory_bytes() -> int:
  """Most memory of this process; `resource` would tell of its parent's too."""
  for line in _STATUS.read_text().splitlines():
    if line.startswith("VmHWM:"):
      return 1024 * int(line.split()[1])
  return 0


def main(argv: Sequence[str]) -> None:
  """Trains a client.

  Args:
    argv: Paths of the training.tflite, of the weights, of what the client
      holds, of the delta to write, and of what stays, to write.
  """
  program, model, client, delta, stays = map(pathlib.Path, argv[1:])
  weights, words = tensor_files.unpack(model.read_bytes())
  holds, _ = tensor_files.unpack(client.read_bytes())
  interpreter = litert.Interpreter(str(program), num_threads=1)
  train = interpreter.get_signature_runner("train")
  shapes = {
    name: detail["shape"] for name, detail in train.get_output_details().items()
  }
  if len(holds["images"]):
    outputs = train(**weights, **holds)
  else:
    outputs = {name: np.zeros(shape, "f4") for name, shape in shapes.items()}
  changes = {name: outputs[name] for name in outputs if name in weights}
  delta.write_bytes(tensor_files.pack(changes, words))
  facts = {
    name: outputs[name].item() for name in outputs if name not in weights
  }
  facts["peak_memory_bytes"] = _peak_memory_bytes()
  facts["without_tensorflow"] = "tensorflow" not in sys.modules
  stays.write_text(json.dumps(facts))


if __name__ == "__main__":
  main(sys.argv)
