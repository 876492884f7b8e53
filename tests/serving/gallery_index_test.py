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


def _mean_share(found, nearest):
  """The share of the nearest rows that were found, its mean over queries."""
  pairs = zip(found, nearest, strict=True)
  return np.mean([np.isin(few, all_few).mean() for few, all_few in pairs])


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
  nearest = np.argsort(-(queries @ embeddings.T))[:, :10]
  share = _mean_share(index.search(queries, 10)[1], nearest)
  assert index.measure_recall(queries) == pytest.approx(share)
  assert share > 0.95
  exact = _create(gallery_index.EXACT, embeddings, labels)
  assert exact.measure_recall(queries) is None


@pytest.mark.parametrize("kind", gallery_index.KINDS)
def test_copies_of_an_image_do_no_harm(kind):
  """A picture "no photo", which many people have."""
  embeddings, labels, queries = _make_up(60, 5)
  places = [50] * 300
  with_copies = np.insert(embeddings, places, embeddings[0], axis=0)
  index = _create(kind, with_copies, np.insert(labels, places, 99))
  similarities, rows = index.search(queries, 7)
  expected = queries @ with_copies.T
  nearest = np.sort(expected)[:, ::-1][:, :7]
  is_right = np.abs(similarities - nearest).max(axis=1) < 1e-6
  assert is_right.mean() > (0.99 if kind == gallery_index.EXACT else 0.95)
  found = np.take_along_axis(expected, rows, axis=1)
  np.testing.assert_allclose(similarities, found, atol=1e-6)
  # Each row once; those of a class go with it, also where another has its like.
  assert all(len({*row}) == 7 for row in rows.tolist())
  assert index.measure_recall(embeddings[:1]) in (None, 1.0)
  assert index.remove(["c99"]) == 300
  similarities, rows = index.search(embeddings[:1], 2)
  assert similarities[0, 0] == pytest.approx(1)
  assert index.images["path"][rows[0, 0]] == "c0/0"
  assert similarities[0, 1] < 0.99


def _listing(*files):
  columns = ["name", "path", "digest"]
  listed = pd.DataFrame(files, columns=columns, dtype=object)
  return listed.assign(entry=listed["path"])


def test_an_index_follows_its_folder(tmp_path):
  place = {}
  for name in ("same", "changed", "gone", "moved", "copied"):
    place[name] = str(tmp_path / name)
    if name not in ("gone", "moved"):
      (tmp_path / name).write_text(name)
  embeddings, _, _ = _make_up(60, 5)
  index = gallery_index.GalleryIndex("model", gallery_index.EXACT)
  before = _listing(
    *(["ann", place[name], name] for name in place),
    ["bob", "/elsewhere/too", "moved"],
    ["bob", "/elsewhere", "none"],
  )
  assert index.follow(tmp_path, before).new == [*range(7)]
  index.add(embeddings[:7], before)
  after = _listing(
    ["ann", place["same"], "same"],
    ["ann", place["changed"], "other"],
    ["bob", str(tmp_path / "there"), "moved"],
    ["ann", str(tmp_path / "here"), "moved"],
    ["ann", place["copied"], "copied"],
    ["cat", str(tmp_path / "copy"), "copied"],
    ["cat", str(tmp_path / "unread"), ""],
  )
  assert index.follow(tmp_path, after) == gallery_index.Changes(
    new=[1, 5, 6],
    replaced=[place["changed"]],
    num_moved=2,
    gone=[place["gone"]],
  )
  index.add(embeddings[10:13], after.iloc[[1, 5, 6]])
  keys = index.images[["name", "path"]].itertuples(index=False, name=None)
  kept = {key: row for row, key in enumerate(keys)}
  for key, expected in (
    (("ann", place["same"]), 0),
    (("ann", place["gone"]), 2),
    (("ann", str(tmp_path / "here")), 3),
    (("bob", str(tmp_path / "there")), 5),
    (("bob", "/elsewhere"), 6),
    (("ann", place["changed"]), 10),
    (("cat", str(tmp_path / "copy")), 11),
  ):
    _, rows = index.search(embeddings[expected][np.newaxis], 1)
    assert kept[key] == rows[0, 0]
  assert len(kept) == 9
  # Files that were not read are read again; those that are gone go on demand.
  changes = index.follow(tmp_path, after, sync=True)
  assert (changes.new, changes.gone) == ([6], [place["gone"]])
  assert index.follow(tmp_path, after).gone == []
  # An image stays whose file was read once and cannot be read now.
  assert len(index.images) == 8


def test_links_in_a_folder_are_followed(tmp_path):
  folder = tmp_path / "people"
  for name in ("ann", "bob", "cat"):
    (folder / name).mkdir(parents=True)
  (tmp_path / "cat").mkdir()
  for file in ("bob.png", "cat/1.png"):
    (tmp_path / file).write_text(file)
  (folder / "ann" / "1.png").write_text("ann")
  (folder / "bob" / "1.png").symlink_to(tmp_path / "bob.png")
  (folder / "cat" / "1.png").symlink_to(tmp_path / "cat" / "1.png")

  def list_folder():
    gallery = gallery_index.open_folder(
      str(folder), (1, 1, 3), on_bad_example="fail"
    )
    return gallery_index.list_images(gallery, with_digests=True)

  index = gallery_index.GalleryIndex("model", gallery_index.EXACT)
  listed = list_folder()
  index.add(np.eye(3), listed)
  assert index.images["path"][1] == str(tmp_path / "bob.png")
  assert index.follow(folder, listed) == gallery_index.Changes([], [], 0, [])
  # The file is still there when a link to it is gone.
  for name in ("bob", "cat"):
    (folder / name / "1.png").unlink()
  (tmp_path / "copy.png").write_text("bob.png")
  (folder / "bob" / "1.png").symlink_to(tmp_path / "copy.png")
  changes = index.follow(folder, list_folder(), sync=True)
  gone = [str(folder / "cat" / "1.png")]
  assert changes == gallery_index.Changes([], [], 1, gone)
  assert index.images["path"].tolist() == [
    str(folder / "ann" / "1.png"),
    str(tmp_path / "copy.png"),
  ]


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
  least = 0.99 if index.kind == gallery_index.EXACT else 0.95
  assert _mean_share(found, nearest) > least
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
    content.replace(b'"version": 5', b'"version": 4'),
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
