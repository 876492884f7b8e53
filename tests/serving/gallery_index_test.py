"""Tests of the index of a large gallery."""

import numpy as np
import pandas as pd
import pytest

from tff_fedemb import errors
from tff_fedemb.serving import gallery_index

_DIM = 16


def _unit(array):
  return array / np.linalg.norm(array, axis=1, keepdims=True)


def _make_up(num_classes, images_of_class, *, dim=_DIM, seed=0):
  """Embeddings of classes that overlap, and queries of these."""
  generator = np.random.default_rng(seed)
  centers = generator.normal(size=(num_classes, dim)).astype(np.float32)

  def draw(labels):
    noise = generator.normal(0, 0.7, (len(labels), dim)).astype(np.float32)
    return _unit(centers[labels] + noise)

  labels = np.repeat(np.arange(num_classes), images_of_class)
  return draw(labels), labels, draw(generator.integers(0, num_classes, 200))


def _create(kind, embeddings, labels):
  index = gallery_index.GalleryIndex("model", kind)
  # In two parts, the second with classes that are new and others.
  for some in (slice(0, 0), slice(0, 101), slice(101, None)):
    names = [f"c{label}" for label in labels[some]]
    paths = [f"{n}/{i}" for i, n in enumerate(names, some.start)]
    images = pd.DataFrame({"name": names, "path": paths}, dtype=object)
    index.add(embeddings[some], images)
  return index


@pytest.fixture(name="index", params=gallery_index.KINDS)
def _index(request):
  embeddings, labels, _ = _make_up(60, 5)
  return _create(request.param, embeddings, labels)


def test_search_finds_the_nearest(index):
  embeddings, labels, queries = _make_up(60, 5)
  similarities, rows = index.search(queries, 7, exact=True)
  expected = queries @ embeddings.T
  np.testing.assert_array_equal(rows, np.argsort(-expected)[:, :7])
  np.testing.assert_allclose(
    similarities, -np.sort(-expected)[:, :7], atol=1e-6
  )
  assert index.images["name"].tolist() == [f"c{label}" for label in labels]
  # A search may ask for ten, and for no more than there are.
  assert index.search(queries, 1000)[0].shape == (200, 300)


def test_a_graph_tells_how_much_it_finds():
  embeddings, labels, queries = _make_up(400, 5)
  index = _create(gallery_index.HNSW, embeddings, labels)
  found = index.search(queries, 10)[1]
  nearest = np.argsort(-(queries @ embeddings.T))[:, :10]
  shares = [np.isin(a, b).mean() for a, b in zip(found, nearest, strict=True)]
  assert index.measure_recall(queries) == pytest.approx(np.mean(shares))
  assert np.mean(shares) > 0.95
  exact = _create(gallery_index.EXACT, embeddings, labels)
  assert exact.measure_recall(queries) is None


def test_what_is_removed_is_not_found(index, tmp_path):
  embeddings, labels, queries = _make_up(60, 5)
  gone = [f"c{2 * i}" for i in range(5)]
  assert index.remove(gone) == 25
  is_kept = ~np.isin(labels, 2 * np.arange(5))
  expected = np.where(is_kept, queries @ embeddings.T, -np.inf)
  _, rows = index.search(queries, 5)
  paths = index.images["path"].to_numpy()
  found = [[int(path.split("/")[1]) for path in row] for row in paths[rows]]
  nearest = np.argsort(-expected)[:, :5]
  agreement = np.mean(
    [np.isin(a, b).mean() for a, b in zip(found, nearest, strict=True)]
  )
  assert agreement > (0.99 if index.kind == gallery_index.EXACT else 0.95)
  assert len(index.images) == is_kept.sum()
  # Nothing of them is left in a file.
  index.write(tmp_path / "people.index")
  content = (tmp_path / "people.index").read_bytes()
  for row, label in enumerate(labels):
    assert (embeddings[row].tobytes() in content) == is_kept[row]
    assert (f'"c{label}/{row}"'.encode() in content) == is_kept[row]
    assert (f'"c{label}"'.encode() in content) == is_kept[row]
  again = gallery_index.read(tmp_path / "people.index", "model")
  np.testing.assert_array_equal(again.search(queries, 5)[1], rows)
  # Whoever comes back is found again.
  again = pd.DataFrame({"name": [gone[0]], "path": ["again"]})
  index.add(queries[:1], again)
  similarities, rows = index.search(queries[:1], 1)
  assert index.images["path"][rows[0, 0]] == "again"
  assert similarities[0, 0] == pytest.approx(1)
  with pytest.raises(errors.FieldError, match="classes of the index, found c2"):
    index.remove(["c2"])


def test_a_file_of_another_model_or_damaged_is_refused(index, tmp_path):
  path = tmp_path / "people.index"
  index.write(path)
  with pytest.raises(errors.FieldError, match="same model as saved_model"):
    gallery_index.read(path, "other")
  content = path.read_bytes()
  for damaged in (
    content[: len(content) // 2],
    content.replace(b'"version": 3', b'"version": 2'),
  ):
    path.write_bytes(damaged)
    with pytest.raises(errors.FieldError, match="a file that this program"):
      gallery_index.read(path, "model")


@pytest.mark.slow
def test_a_graph_of_many_finds_most():
  """With noise in all 128 directions, which is harder than a model's."""
  embeddings, labels, queries = _make_up(3000, 10, dim=128)
  index = _create(gallery_index.HNSW, embeddings, labels)
  assert index.measure_recall(queries) >= 0.95
