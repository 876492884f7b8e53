"""Small folders of photos by user, and tables of them."""

import itertools

import numpy as np

from tests.data import photo_files
from tests.tasks import clients
from tff_fedemb.data import photo_listing

SIDE = 8
CLASSES = tuple("abcdefgh")
USERS = ("ann", "bob", "cyd", "dan")


def encode(seed, form="JPEG"):
  return photo_files.encode(seed, form, size=(SIDE, SIDE))


def write(root, path, form="JPEG"):
  """Writes an image of its own for each path."""
  file = root / path
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_bytes(encode(path, form))
  return file


def write_all(root):
  """Each user has two images of each class."""
  for row in rows():
    write(root, row["image"])


def write_people(root):
  """Twelve people, three images each, in a folder a person."""
  for person in range(12):
    for number in range(3):
      write(root, f"p{person}/{number}.jpg")
  return root


def rows(*, split=None):
  """The rows of a table of all images, as texts."""
  return [
    {
      "image": f"{user}/{label}/{number}.jpg",
      "user": user,
      "label": label,
      **({} if split is None else {"split": split(user, label)}),
    }
    for user, label, number in itertools.product(USERS, CLASSES, range(2))
  ]


def train_labels():
  """Names of the classes that are not held out."""
  splits = photo_listing.draw_splits(CLASSES, np.ones(len(CLASSES), bool), 2)
  return [c for c, s in zip(CLASSES, splits, strict=True) if s == 0]


def read_labels(task):
  """Labels of the images of all training users."""
  ids = "\n".join(clients.user_ids(task))
  return clients.read_client(task, ids)[1].tolist()
