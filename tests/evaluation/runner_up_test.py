"""Tests of thresholds for a similarity that the runner-up counts against."""

import numpy as np
import pytest

from tests.evaluation import gallery_thresholds_test
from tff_fedemb.evaluation import identification
from tff_fedemb.evaluation import pairs
from tff_fedemb.evaluation import runner_up

_CLASSES, _IMAGES, _SIZE = 150, 6, 100
_RATES = (0.1, 0.03)


def _draw(seed, num_classes=_CLASSES):
  """Unit embeddings `[classes, images, dim]` of people who look alike."""
  generator = np.random.default_rng(seed)
  embeddings = gallery_thresholds_test.draw_embeddings(
    generator, num_classes, _IMAGES
  )
  return pairs.normalize(embeddings)


def _measure(embeddings):
  count = len(embeddings)
  measured = identification.Identification(
    embeddings.reshape(count * _IMAGES, -1),
    np.repeat(np.arange(count), _IMAGES),
    images_of_identity=3,
    compared=identification.MEAN,
  )
  return measured, runner_up.measure(measured, _RATES)


def _simulate(embeddings, generator):
  """Scores of strangers and of the enrolled in one gallery, each by a loop."""
  order = generator.permutation(len(embeddings))
  members, others = order[:_SIZE], order[_SIZE:]
  enrolled = pairs.normalize(embeddings[members, :3].mean(axis=1))
  strangers, found = [], []
  for probe in embeddings[others].reshape(-1, embeddings.shape[-1]):
    best, second, *_ = sorted(enrolled @ probe, reverse=True)
    strangers.append((best - 0.4 * second, best))
  for place, member in enumerate(members):
    for probe in embeddings[member, 3:]:
      alike = enrolled @ probe
      best, second, *_ = sorted(alike, reverse=True)
      is_right = alike.argmax() == place
      found.append((best - 0.4 * second, best) if is_right else (-2.0, -2.0))
  return np.array(strangers), np.array(found)


@pytest.fixture(name="simulated", scope="module")
def _simulated():
  """Thresholds, and scores in galleries of other people."""
  generator = np.random.default_rng(1)
  measured, thresholds = _measure(_draw(0))
  galleries = [_simulate(_draw(2 + x), generator) for x in range(8)]
  strangers, found = map(np.concatenate, zip(*galleries, strict=True))
  return measured, thresholds, strangers, found


def test_promises_hold_for_other_people(simulated):
  _, thresholds, strangers, _ = simulated
  # The largest gallery leaves strangers.
  assert list(thresholds) == [50, 100, 105]
  for rate, threshold in zip(_RATES, thresholds[_SIZE].thresholds, strict=True):
    accepted = np.mean(strangers[:, 0] >= threshold)
    assert accepted == pytest.approx(rate, rel=0.35)


def test_gain_is_what_is_found_more(simulated):
  measured, thresholds, _, found = simulated
  gains = []
  for rate, threshold in zip(_RATES, thresholds[_SIZE].thresholds, strict=True):
    alone = np.mean(found[:, 1] >= measured.threshold(rate, _SIZE))
    gains.append(np.mean(found[:, 0] >= threshold) - alone)
  assert thresholds[_SIZE].gain == pytest.approx(np.mean(gains), abs=0.05)


def test_nothing_is_known_from_few_classes():
  _, thresholds = _measure(_draw(0, num_classes=70))
  assert not thresholds
