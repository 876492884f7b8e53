"""Tests of the search for the most similar class."""

import pathlib

import numpy as np
import pandas as pd
import pytest

from tff_fedemb import errors
from tff_fedemb.serving import class_search
from tff_fedemb.serving import gallery_index

# Directions of images in degrees, by class.
_DEGREES = {"ann": (0, 40), "bob": (80, 90, 100), "cy": (200,)}
_FILES = [f"/{n}/{i}" for n, some in _DEGREES.items() for i in range(len(some))]


def _unit(degrees):
  angles = np.radians(degrees)
  return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _search(kind, degrees, *, paths=None, compared="mean"):
  index = gallery_index.GalleryIndex("model", kind)
  names = [path.split("/")[1] for path in _FILES]
  images = pd.DataFrame({"name": names, "path": _FILES}, dtype=object)
  index.add(_unit(np.concatenate(list(_DEGREES.values()))), images)
  paths = map(pathlib.Path, paths or [f"/query/{x}" for x in degrees])
  return class_search.find(index, _unit(degrees), [*paths], compared)


@pytest.mark.parametrize("kind", gallery_index.KINDS)
def test_images_of_a_class_count_together(kind):
  found = _search(kind, [20, 61, 210])
  # Their means are at 20, 90 and 200 degrees.
  assert found["nearest_class"].tolist() == ["ann", "bob", "cy"]
  cosines = np.cos(np.radians([0, 29, 10]))
  np.testing.assert_allclose(found["similarity"], cosines, atol=1e-6)
  assert found["runner_up"].tolist() == ["bob", "ann", "bob"]
  cosines = np.cos(np.radians([70, 41, 120]))
  np.testing.assert_allclose(found["runner_up_similarity"], cosines, atol=1e-6)
  assert found["nearest_image"].tolist()[1:] == ["/bob/0", "/cy/0"]
  # The nearest image is ann's, though bob's mean is nearer than hers.
  found = _search(kind, [59], compared="nearest")
  assert found["nearest_class"].tolist() == ["ann"]
  assert found["similarity"][0] == pytest.approx(np.cos(np.radians(19)))


@pytest.mark.parametrize("kind", gallery_index.KINDS)
def test_an_image_is_compared_with_the_others_of_its_class(kind):
  found = _search(kind, [0, 100], paths=["/ann/0", "/bob/2"])
  assert found["nearest_class"].tolist() == ["ann", "bob"]
  assert found["nearest_image"].tolist() == ["/ann/1", "/bob/1"]
  cosines = np.cos(np.radians([40, 15]))
  np.testing.assert_allclose(found["similarity"], cosines, atol=1e-6)
  # Nobody else is of its class.
  found = _search(kind, [200], paths=["/cy/0"])
  assert found["nearest_class"].tolist() == ["bob"]
  assert found["runner_up"].tolist() == ["ann"]


@pytest.mark.parametrize("compared", ["mean", "nearest"])
@pytest.mark.parametrize("kind", gallery_index.KINDS)
def test_a_narrow_cone_is_not_rounded(kind, compared):
  # In single precision, the cosine of 0.02 degrees may be 1.
  index = gallery_index.GalleryIndex("model", kind)
  images = pd.DataFrame(
    {"name": ["ann", "bob"], "path": ["/ann/0", "/bob/0"]}, dtype=object
  )
  index.add(_unit([45.0, 45.1]), images)
  queries = _unit([45.02, 45.03])
  paths = [pathlib.Path("/0"), pathlib.Path("/1")]
  found = class_search.find(index, queries, paths, compared)
  for column, degrees in (
    ("similarity", [0.02, 0.03]),
    ("runner_up_similarity", [0.08, 0.07]),
  ):
    distances = 1.0 - found[column]
    expected = np.radians(degrees) ** 2 / 2
    np.testing.assert_allclose(distances, expected, rtol=0.02)


@pytest.mark.parametrize("compared", ["mean", "nearest"])
def test_a_query_alone_is_refused(compared):
  index = gallery_index.GalleryIndex("model", gallery_index.EXACT)
  images = pd.DataFrame({"name": ["cy"], "path": ["/cy/0"]}, dtype=object)
  index.add(_unit([0]), images)
  path = pathlib.Path("/cy/0")
  with pytest.raises(errors.FieldError, match="others than the query, found"):
    class_search.find(index, _unit([0]), [path], compared)
  found = class_search.find(index, _unit([0]), [pathlib.Path("/q")], compared)
  assert found["runner_up"].isna().all()
  assert found["runner_up_similarity"].isna().all()
