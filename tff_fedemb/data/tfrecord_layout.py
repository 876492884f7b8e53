"""How federated photos lie in files, without TensorFlow.

TensorFlow Federated (0.87) keeps federated Google Landmarks v2 and iNaturalist
2017 (Hsu et al., 2020, "Federated Visual Classification with Real-World Data
Distribution", ECCV) as one folder a variant: `train/<user id>`, a TFRecord file
a user, and `test.tfRecord`. A record is a `tf.train.Example` of an encoded
image and its class.
"""

from collections.abc import Mapping
import json
import os
import pathlib

TRAIN_FOLDER = "train"
TEST_FILE_NAME = "test.tfRecord"
# In a folder of synthetic data, says how it was made; TFF does not look at it.
GENERATOR_FILE_NAME = "generator.json"

# Features of a record: bytes (JPEG as it was downloaded) and int64.
IMAGE_FEATURE = "image/encoded_jpeg"
CLASS_FEATURE = "class"


def read_generator(folder: str | os.PathLike[str]) -> Mapping[str, object]:
  """Reads what a folder of synthetic data says about its making.

  Args:
    folder: A variant's folder.

  Returns:
    Its parameters by name; nothing if it was not made by a generator.
  """
  try:
    content = (pathlib.Path(folder) / GENERATOR_FILE_NAME).read_text()
    found = json.loads(content)
  except (OSError, ValueError):
    return {}
  return found if isinstance(found, dict) else {}
