"""Tests of the program that tells who is in the picture."""

import csv
import dataclasses
import os
import shutil
import unicodedata

import numpy as np
from PIL import Image
import pytest

from tests.binaries import programs
from tests.features import extractions
from tff_fedemb.records import model_card
from tff_fedemb.serving import gallery_index
from tff_fedemb.serving import saved_models

_SHAPE = (2, 2, 1)
# Pixels are embeddings: the cosine of (1, 0) and (3, 4) is 3 / 5.
_PIXELS = {
  "gallery/ann/1.png": (100, 0, 0, 0),
  "gallery/ann/2.png": (0, 100, 0, 0),
  "gallery/bö b/1.PNG": (0, 0, 100, 0),
  "query/ann/deep/er.png": (96, 0, 28, 0),
  "query/bö b/1.png": (0, 120, 90, 0),
  "query/loose.png": (0, 0, 30, 40),
}


def _write(path, pixels):
  path.parent.mkdir(parents=True, exist_ok=True)
  Image.fromarray(np.array(pixels, np.uint8).reshape(2, 2)).save(path)


@pytest.fixture(name="folder")
def _folder(tmp_path):
  for name, pixels in _PIXELS.items():
    _write(tmp_path / name, pixels)
  (tmp_path / "gallery" / "nobody").mkdir()
  extractions.export(tmp_path / "model", _SHAPE, 1.0)
  card = model_card.ModelCard(
    image_shape=_SHAPE,
    embedding_dim=4,
    verification={
      "at_far": {
        "0.001": {"threshold": 0.79, "recall": 0.25, "warning": "few pairs"},
        "0.01": {"threshold": 0.59, "recall": 0.5, "warning": None},
      },
      "left_out": {"0.0001": "few pairs"},
      "galleries": {
        "fpir": [0.1, 0.01],
        "by_images": [
          {
            "images": 1.5,
            "num_classes": 20,
            "size": [1, 2],
            "threshold": [[0.1, 0.2], [0.5, 0.7]],
            "fpir_low": [[0.03, 0.002], [0.03, 0.002]],
            "fpir_high": [[0.2, 0.02], [0.25, 0.04]],
          },
        ],
      },
    },
  )
  model_card.write(card, tmp_path / "model" / model_card.PATH)
  return tmp_path


def _call(folder, *more, query="query"):
  ended = programs.call(
    "match",
    f"--saved_model={folder / 'model'}",
    f"--gallery={folder / 'gallery'}",
    f"--query={folder / query}",
    f"--output_csv={folder / 'out.csv'}",
    *more,
  )
  if ended.status:
    assert not (folder / "out.csv").exists()
    return ended, []
  with open(folder / "out.csv", encoding="utf-8") as file:
    return ended, list(csv.DictReader(file))


def test_nearest_class_and_threshold(folder):
  ended, rows = _call(folder)
  assert (ended.status, ended.errors) == (0, "")
  # (96, 0, 28, 0) / 100 and (0, 4, 3, 0) / 5.
  expected = """
    loose.png,unknown,bö b,0.600000,false,bö b/1.PNG,ann,0.000000,
    ann/deep/er.png,ann,ann,0.960000,true,ann/1.png,bö b,0.280000,ann
    bö b/1.png,ann,ann,0.800000,true,ann/2.png,bö b,0.600000,bö b
  """
  for row, line in zip(rows, expected.strip().splitlines(), strict=True):
    values = line.strip().split(",")
    assert list(row.values()) == [
      *(os.fspath(folder / "query" / values[0]), *values[1:5]),
      *(os.fspath(folder / "gallery" / values[5]), *values[6:]),
    ]
  words = " ".join(ended.output.split())
  assert "3 queries against 3 images of 2 classes: 2 accepted, 1 unk" in words
  assert "with a probability of up to 0.003." in words
  assert "threshold is uncertain: few pairs" in words
  assert "right for 1 (0.5000); right and accepted 1 (0.5000)." in words
  assert "Of 1 others 0 are accepted." in words


def test_another_rate_and_a_threshold_of_ones_own(folder):
  _, rows = _call(folder, "--far=0.01")
  assert [row["accepted"] for row in rows] == ["true"] * 3
  _, rows = _call(folder, "--threshold=0.9", "--overwrite")
  assert [row["accepted"] for row in rows] == ["false", "true", "false"]


def test_rate_of_a_gallery(folder):
  # Two classes with three images.
  ended, rows = _call(folder, "--fpir=0.01")
  assert [row["identity"] for row in rows] == ["unknown", "ann", "ann"]
  words = " ".join(ended.output.split())
  assert "Threshold 0.7000: a stranger's image is accepted with a prob" in words
  assert "of 0.01 (0.002 to 0.04), the mean" in words
  assert "galleries of 2 classes with 1.5 images each." in words
  assert (
    "warning: 20 held-out classes are too few for fpir 0.01 in a gallery of 2:"
    " the smallest that they support is 0.1." in words
  )
  ended, rows = _call(folder, "--fpir=0.1", "--overwrite")
  assert [row["identity"] for row in rows] == ["bö b", "ann", "ann"]
  assert "warning" not in ended.output


def test_images_of_a_class_count_together_for_a_gallery(folder):
  path = folder / "model" / model_card.PATH
  card = model_card.read(path)
  galleries = card.verification["galleries"] | {"compared": "mean"}
  of_two = galleries["by_images"][0] | {"images": 2}
  galleries["by_images"] = [*galleries["by_images"], of_two]
  verification = card.verification | {"galleries": galleries}
  model_card.write(dataclasses.replace(card, verification=verification), path)
  ended, rows = _call(folder, "--fpir=0.01")
  # The mean of ann's images has the direction (1, 1, 0, 0).
  similarities = {row["path"]: float(row["similarity"]) for row in rows}
  assert similarities[str(folder / "query/ann/deep/er.png")] == pytest.approx(
    0.96 / np.sqrt(2), abs=2e-6
  )
  words = " ".join(ended.output.split())
  assert "with the mean of each class's images." in words
  ended, rows = _call(
    folder, "--fpir=0.1", "--fpir_certainty=0.95", "--overwrite"
  )
  words = " ".join(ended.output.split())
  assert "It is at most 0.1 with a certainty of 0.95, over the" in words
  assert "accepted with a probability of 0.0" in words


def test_a_cohort_sets_the_threshold(folder):
  generator = np.random.default_rng(0)
  for label in range(30):
    center = generator.integers(0, 200, 4)
    for image in range(3):
      pixels = center + generator.integers(0, 40, 4)
      _write(folder / f"others/{label}/{image}.png", pixels)
  # A model that carries no threshold.
  (folder / "model" / model_card.PATH).unlink()
  cohort = f"--cohort={folder / 'others'}"
  ended, rows = _call(folder, "--fpir=0.1", cohort)
  words = " ".join(ended.output.split())
  assert "Its score is the similarity less half the mean with the near" in words
  threshold = float(words.split("Threshold ")[1].split(":")[0])
  for row in rows:
    is_accepted = float(row["score"]) >= threshold
    assert row["accepted"] == str(is_accepted).lower()
    # Pixels are not negative, so that everybody is like somebody.
    assert 0 < float(row["similarity"]) - float(row["score"]) <= 0.5
  for options, message in (
    ([cohort], "--fpir must be given with cohort"),
    ([cohort, "--fpir=0.1", "--threshold=0"], "--threshold must not be given"),
  ):
    (folder / "out.csv").unlink(missing_ok=True)
    programs.check_refused(_call(folder, *options)[0], message)


def _call_index(folder, *more):
  model, index = f"--saved_model={folder / 'model'}", f"{folder / 'known'}"
  ended = programs.call("match", model, f"--index={index}", *more)
  return ended, " ".join(ended.output.split())


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_an_index_is_built_and_searched(folder, kind):
  _, expected = _call(folder, "--fpir=0.01", query="query")
  (folder / "out.csv").unlink()
  gallery = f"--gallery={folder / 'gallery'}"
  ended, words = _call_index(folder, gallery, f"--index_kind={kind}")
  assert ended.status == 0, ended.errors
  assert "known: 3 images of 2 classes, 3 of them new; 0 removed." in words
  search = (f"--query={folder / 'query'}", f"--output_csv={folder / 'out.csv'}")
  _, words = _call_index(folder, *search, "--fpir=0.01")
  assert "3 queries against 3 images of 2 classes: 2 accepted" in words
  assert "galleries of 2 classes with 1.5 images each." in words
  is_told = "finds 1.0000 of the ten nearest images of queries" in words
  assert is_told == (kind == "hnsw")
  with open(folder / "out.csv", encoding="utf-8") as file:
    assert list(csv.DictReader(file)) == expected
  # An image that is there is not added again; a removed one may come back.
  _write(folder / "gallery/cat/1.png", (0, 0, 0, 100))
  _, words = _call_index(folder, gallery, "--remove=ann")
  assert "known: 4 images of 3 classes, 3 of them new; 2 removed." in words
  _, words = _call_index(folder, "--remove=ann,cat")
  assert "known: 1 images of 1 classes, 0 of them new; 3 removed." in words
  _, words = _call_index(folder, *search, "--threshold=0.5", "--overwrite")
  assert "Of 2 others 1 are accepted." in words
  ended, _ = _call_index(folder, *search, "--remove=bö b", "--overwrite")
  programs.check_refused(ended, "--index must have an image left")


def test_an_index_follows_its_folder(folder):
  gallery = folder / "gallery"
  _call_index(folder, f"--gallery={gallery}")
  _write(gallery / "ann" / "1.png", (0, 0, 30, 40))
  (gallery / "ann" / "2.png").unlink()
  _, words = _call_index(folder, f"--gallery={gallery}")
  assert "known: 3 images of 2 classes, 1 of them new; 0 removed." in words
  assert "1 of the new replace others, of files that have changed: " in words
  assert f"warning: 1 images of the index are not in {gallery} any m" in words
  assert str(gallery / "ann" / "2.png") in words
  search = (f"--query={folder / 'query'}", f"--output_csv={folder / 'out.csv'}")
  _call_index(folder, *search, "--threshold=0.9")
  with open(folder / "out.csv", encoding="utf-8") as file:
    rows = {row["path"]: row for row in csv.DictReader(file)}
  found = rows[str(folder / "query" / "loose.png")]
  assert (found["identity"], found["similarity"]) == ("ann", "1.000000")
  # A folder that moved is not counted twice, a class may have another name.
  gallery.rename(folder / "moved")
  gallery = (folder / "moved").rename(folder / "new")
  (gallery / "bö b").rename(gallery / "bob")
  _, words = _call_index(
    folder, f"--gallery={gallery}", "--remove=ann", "--sync"
  )
  assert "known: 2 images of 2 classes, 1 of them new; 2 removed." in words
  assert "1 have moved to" in words
  _, words = _call_index(folder, f"--gallery={gallery}")
  assert "0 of them new; 0 removed." in words and "warning" not in words
  (gallery / "bob" / "1.PNG").write_text("no image")
  _, words = _call_index(
    folder, f"--gallery={gallery}", "--on_bad_example=skip"
  )
  # Nobody is taken out who was not asked to go.
  assert "known: 2 images of 2 classes, 0 of them new; 0 removed." in words
  assert (
    "1 images of the index stay, whose files cannot be read any mo" in words
  )
  _, words = _call_index(
    folder, f"--gallery={gallery}", "--on_bad_example=skip", "--sync"
  )
  assert "known: 1 images of 1 classes, 0 of them new; 1 removed." in words


def _truncate(path):
  path.write_bytes(path.read_bytes()[:40])


# Each with what is told then. The first image is (100, 0, 0, 0).
_CHANGES = {
  "replaced": (
    lambda gallery: _write(gallery / "ann/1.png", (1, 2, 3, 4)),
    "1 of them new; 0 removed. 1 of the new replace others, of files that have",
  ),
  "deleted": (
    lambda gallery: (gallery / "ann/1.png").unlink(),
    "0 of them new; 0 removed. warning: 1 images of the index are not in",
  ),
  "moved": (
    lambda gallery: gallery.rename(gallery.parent / "moved"),
    "3 images of 2 classes, 0 of them new; 0 removed. 3 have moved to",
  ),
  "renamed": (
    lambda gallery: (gallery / "ann/1.png").rename(gallery / "ann/9.png"),
    "3 images of 2 classes, 0 of them new; 0 removed. 1 have moved to",
  ),
  "copied": (
    lambda gallery: shutil.copy(gallery / "ann/1.png", gallery / "ann/3.png"),
    "4 images of 2 classes, 1 of them new; 0 removed.",
  ),
  "class renamed": (
    lambda gallery: (gallery / "ann").rename(gallery / "zoe"),
    "3 images of 2 classes, 0 of them new; 0 removed. 2 have moved to",
  ),
  "rotated": (
    lambda gallery: _write(gallery / "ann/1.png", (0, 100, 0, 0)),
    "1 of the new replace others, of files that have changed: ",
  ),
  "truncated": (
    lambda gallery: _truncate(gallery / "ann/1.png"),
    "warning: skipped 1 unreadable file: ",
  ),
  "in two classes": (
    lambda gallery: shutil.copy(gallery / "ann/1.png", gallery / "bö b"),
    "1 of them new; 0 removed. warning: 2 images have the content of one of an",
  ),
  "comma in the name": (
    lambda gallery: (gallery / "ann").rename(gallery / "ann, bö b"),
    "3 images of 2 classes, 0 of them new; 0 removed. 2 have moved to",
  ),
}


def _read_index(folder):
  """Class, path and embedding of each image, in an order of its own."""
  index = gallery_index.read(
    folder / "known", saved_models.digest(folder / "model")
  )
  names = index.images[["name", "path"]].itertuples(index=False, name=None)
  embeddings = index.vectors.reconstruct_batch(index.places)
  return sorted(zip(names, embeddings.round(6).tolist(), strict=True))


@pytest.mark.parametrize("name", _CHANGES)
def test_an_index_is_right_or_tells_what_is_not(folder, name):
  change, told = _CHANGES[name]
  gallery = folder / "gallery"
  assert _call_index(folder, f"--gallery={gallery}")[0].status == 0
  change(gallery)
  gallery = gallery if gallery.exists() else folder / "moved"
  options = [f"--gallery={gallery}", "--on_bad_example=skip"]
  _, words = _call_index(folder, *options)
  assert told in words
  _call_index(folder, *options, "--sync")
  followed = _read_index(folder)
  # It is what an index is that is made now.
  (folder / "known").unlink()
  _call_index(folder, *options)
  assert followed == _read_index(folder)
  if name == "comma in the name":
    _, words = _call_index(folder, "--remove=ann, bö b")
    assert "1 images of 1 classes, 0 of them new; 2 removed." in words


def test_classes_with_commas_are_removed(folder):
  gallery = folder / "gallery"
  for name in ("Smith", "John", "Smith, John"):
    (gallery / name).mkdir()
    shutil.copy(gallery / "ann" / "1.png", gallery / name)
  _call_index(folder, f"--gallery={gallery}")
  _, words = _call_index(folder, "--remove=Smith, John")
  assert "known: 5 images of 4 classes, 0 of them new; 1 removed." in words
  _, words = _call_index(folder, "--remove=Smith", "--remove=John,ann")
  assert "known: 1 images of 1 classes, 0 of them new; 4 removed." in words


def test_mistakes_with_an_index_are_one_line(folder):
  gallery = f"--gallery={folder / 'gallery'}"
  assert _call_index(folder, gallery)[0].status == 0
  content = (folder / "known").read_bytes()
  for more, expected in (
    (["--index_kind=hnsw"], "--index_kind must be that of"),
    (["--sync"], "--sync must be given with both index and gallery"),
    (["--remove=bob"], "--remove must be classes of the index, found bob"),
    ([f"--query={folder}"], "--output_csv must be given"),
    (["--index=", gallery], "--query must be given"),
    (["--index="], "--gallery must be given, or an index"),
    ([f"--index={folder}/no/no", gallery], "--index must be in a directory"),
    # The index would have lost a class, or become the result.
    (
      ["--remove=ann", "--query=missing", f"--output_csv={folder}/out.csv"],
      "--query must be a folder that can be read",
    ),
    (
      [f"--query={folder}", f"--output_csv={folder}/known", "--overwrite"],
      "--output_csv must be another file than index",
    ),
    (
      [f"--index={folder / 'gallery/ann/1.png'}"],
      "--index must be a file that this program wrote",
    ),
  ):
    programs.check_refused(_call_index(folder, *more)[0], expected)
  extractions.export(folder / "model", _SHAPE, 2.0)
  programs.check_refused(
    _call_index(folder, gallery)[0], "--index must be of the same model"
  )
  assert (folder / "known").read_bytes() == content


def test_an_image_is_not_compared_with_itself(folder):
  _, rows = _call(folder, query="gallery")
  assert [row["similarity"] for row in rows] == ["0.000000"] * 3
  assert [row["folder_class"] for row in rows] == ["ann", "ann", "bö b"]
  (folder / "out.csv").unlink()
  shutil.rmtree(folder / "gallery" / "ann")
  ended, _ = _call(folder, query="gallery")
  programs.check_refused(ended, "--gallery must have others than the query")


def test_names_match_in_any_form_of_their_letters(folder):
  name = unicodedata.normalize("NFD", "bö b")
  assert name != "bö b"
  (folder / "query" / "bö b").rename(folder / "query" / name)
  _, rows = _call(folder)
  assert [row["folder_class"] for row in rows] == ["", "ann", "bö b"]


def test_mistakes_are_one_line(folder):
  for options, message in (
    (
      ["--far=0.0001"],
      "--far must be a rate of which the model has a threshold: 0.001, 0.01,"
      " found 0.0001 (few pairs)",
    ),
    (["--fpir=0.001"], "--fpir must be from 0.01 to 0.1, found 0.001"),
    (["--fpir_certainty=0.95"], "--fpir must be given with fpir_certainty"),
    (
      ["--fpir=0.01", "--fpir_certainty=0.95"],
      "--fpir_certainty must be smaller at fpir 0.01 for a gallery of 2",
    ),
    (["--query=missing"], "--query must be a folder that can be read"),
    ([f"--gallery={folder}/gallery/ann"], "--gallery must hold sub-folders"),
    (
      ["--fpir=0.1", f"--cohort={folder}/query/../gallery"],
      "--cohort must be people who are neither in the gallery nor among",
    ),
  ):
    programs.check_refused(_call(folder, *options)[0], message)


def test_a_model_without_thresholds(folder):
  path = folder / "model" / model_card.PATH
  card = model_card.read(path)
  card = dataclasses.replace(card, verification={"at_far": {}})
  model_card.write(card, path)
  ended, _ = _call(folder, "--fpir=0.1")
  programs.check_refused(ended, "--fpir must be given for a model whose")
  path.unlink()
  ended, _ = _call(folder)
  programs.check_refused(ended, "--threshold must be given for a model that")
  _, rows = _call(folder, "--threshold=-1")
  assert [row["accepted"] for row in rows] == ["true"] * 3
