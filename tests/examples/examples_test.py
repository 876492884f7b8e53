"""Runs the examples, as a newcomer would."""

import json

import numpy as np
from PIL import Image
import pytest
import tensorflow as tf

from examples import forty_people
from examples import own_picture
from examples import own_task
from examples import scaling
from examples import strangers
from tests.binaries import programs
from tff_fedemb import errors
from tff_fedemb.evaluation import verification
from tff_fedemb.models import backbones
from tff_fedemb.models import pretrained
from tff_fedemb.models import starts
from tff_fedemb.records import model_card

_AGGREGATOR = "--aggregator=examples.own_aggregator:OwnAggregator"
_SMALL = (
  *("--task=examples.own_task:OwnTask", "--users=20", "--rounds=2"),
  *("--clients_per_round=4", "--noise_multiplier=2", "--delta=0.01"),
  *("--participation=poisson", "--evaluate_every=0"),
  *("--extrapolated_num_users=1000000", "--kept_share=0.5"),
)


def _read_people(folder):
  """Photos uint8 `[people, photos, ...]` of folders."""
  people = []
  for person in sorted(folder.iterdir()):
    photos = [Image.open(photo) for photo in sorted(person.iterdir())]
    people.append([np.asarray(photo) for photo in photos])
  return np.array(people)


@pytest.mark.parametrize(
  "kind",
  [
    "characters",
    "faces",
    pytest.param("places", marks=pytest.mark.slow),
    pytest.param("textures", marks=pytest.mark.slow),
  ],
)
def test_forty_people_have_ten_photos_each(kind, tmp_path):
  characters = np.repeat(np.arange(50), 20)
  drawings = np.stack([np.eye(28, k=person - 25) for person in characters])
  omniglot = tmp_path / "omniglot.npz"
  images = (255 * (1 - drawings)).astype(np.uint8)
  np.savez(omniglot, images=images, character_id=characters)
  given = [f"--kind={kind}", f"--omniglot={omniglot}", "--grey"]
  for name in ("one", "same"):
    forty_people.main([str(tmp_path / name), *given, "--draw=1"])
  photos = _read_people(tmp_path / "one")
  assert photos.shape[:2] == (40, 10)
  np.testing.assert_array_equal(photos, _read_people(tmp_path / "same"))
  # Two photos of a person are more alike than photos of two people.
  flat = photos.reshape(40, 10, -1).astype(np.float64)
  flat -= flat.mean(axis=-1, keepdims=True)
  flat /= np.linalg.norm(flat, axis=-1, keepdims=True)
  likeness = np.abs(np.einsum("anx,bmx->abnm", flat, flat)).mean(axis=(2, 3))
  own = np.trace(likeness) / 40
  assert own > (likeness.sum() - 40 * own) / (40 * 39)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "times"), [("faces", 2), ("places", 1.05)])
def test_the_weights_that_are_shipped_tell_people_apart(kind, times, tmp_path):
  """Measured: 3 and 1.2 times the untrained recall, means of 20 draws."""
  forty_people.main([str(tmp_path), f"--kind={kind}", "--draw=14", "--grey"])
  photos = _read_people(tmp_path)
  images = photos.reshape(-1, *photos.shape[2:], 1).astype(np.float32)
  tf.keras.utils.set_random_seed(1)
  backbone = backbones.create_backbone(
    starts.BACKBONE, images.shape[1:], embedding_dim=starts.EMBEDDING_DIM
  )
  recalls = []
  for _ in range(2):
    embeddings = backbone.predict(images, batch_size=50, verbose=0)
    labels = np.arange(len(photos)).repeat(10)
    found = verification.evaluate_pairs(embeddings, labels)
    recalls.append(found.recall_at_far[0.01])
    pretrained.load_pretrained(backbone, starts.PATH)
  untrained, started = recalls
  assert started > times * untrained


def test_every_user_of_the_own_task_has_an_image():
  source = own_task.OwnTask(users=1_264)
  assert source.num_train_users == 1_264
  task = source.create()
  assert len(task.train_users) == task.count_images("train") == 1_264
  with pytest.raises(errors.FieldError, match="users must be at most 1,264"):
    own_task.OwnTask(users=1_265)


def test_scaling_doubles_the_channels():
  # Five by five by one channel, then three by three; 4 x 4 places are embedded.
  for name, first in (("NARROW", 6), ("MIDDLE", 12), ("WIDE", 24)):
    model = backbones.create_backbone(
      f"examples.scaling:{name}", (28, 28, 1), embedding_dim=128
    )
    kernels = 25 * first + 9 * first * 2 * first + 9 * 2 * first * 4 * first
    biases = first + 2 * first + 4 * first
    embedding = 16 * 4 * first * 128 + 128
    assert model.count_params() == kernels + biases + embedding


def test_scaling_draws_what_noise_takes(tmp_path):
  paths = []
  for classes, accuracies in ((500, [0.4, 0.6]), (2000, [0.6, 0.8])):
    results = [
      {"method": "sgd", "target_epsilon": 1.0, "accuracies": accuracies},
      {"method": "sgd", "target_epsilon": "inf", "accuracies": [0.8]},
    ]
    path = tmp_path / f"WIDE_{classes}.json"
    path.write_text(json.dumps({"results": results}))
    paths.append(str(path))
  frame = scaling.read(paths)
  np.testing.assert_allclose(frame.loss, [0.3, 0, 0.1, 0], atol=1e-12)
  assert list(frame.classes) == [500, 500, 2000, 2000]
  scaling.main(["", str(tmp_path / "scaling.png"), *paths])
  with Image.open(tmp_path / "scaling.png") as picture:
    assert picture.width > 200


@pytest.mark.slow
def test_own_aggregator_and_own_task_within_a_budget(tmp_path):
  run_dir = f"--run_dir={tmp_path / 'run'}"
  budget = tmp_path / "budget.json"
  budget.write_text('{"epsilon": 0.3, "delta": 0.01, "num_users": 20}')
  run = (*_SMALL, _AGGREGATOR, f"--privacy_budget={budget}")
  ended = programs.call("run_federated", *run, run_dir)
  assert (ended.status, ended.errors) == (0, "")
  assert "7 training classes" in ended.output
  told = programs.call("account", "epsilon", run_dir)
  assert told.status == 0
  assert told.output.startswith("epsilon = 0.2")
  # The budget has been charged for as much, and another run is refused before
  # anything is written.
  charged = programs.call("account", "budget", str(budget)).output
  assert "2 rounds, epsilon 0.2" in charged
  assert charged.rstrip().endswith("(finished)")
  second = programs.call(
    "run_federated", *run, f"--run_dir={tmp_path / 'second'}"
  )
  assert second.status != 0
  assert "--privacy_budget must have enough left for the run" in second.errors
  assert not (tmp_path / "second").exists()
  page = tmp_path / "report.html"
  ended = programs.call(
    "report", f"--run_dirs={tmp_path / 'run'}", f"--output={page}"
  )
  assert (ended.status, ended.errors) == (0, "")
  asked = json.loads((tmp_path / "run" / "run.json").read_text())
  assert asked["task"] == {"kind": "examples.own_task:OwnTask", "users": 20}
  assert asked["mechanism"]["kept_share"] == 0.5


@pytest.mark.slow
def test_voices(tmp_path, capsys):
  """Speakers who never trained are told apart better than before training."""
  run = tmp_path / "run"
  ended = programs.call(
    "run_federated",
    *("--task=examples.voices:Voices", "--speakers=300", f"--run_dir={run}"),
    *("--clients_per_round=8", "--users_per_client=16", "--rounds=24"),
    *("--head=cosine", "--head_imprint_steps=4", "--head_lr_scale=5"),
    *("--batch_size=16", "--client_learning_rate=0.05", "--evaluate_every=0"),
    *("--participation=fixed_size", "--noise_multiplier=0.01", "--report"),
    "--clip_norm=0.3",
  )
  assert ended.status == 0, ended.errors
  found = json.loads((run / "summary.json").read_text())
  trained, untrained = found["recall_at_far"], found["recall_at_far_untrained"]
  assert trained["0.01"] > untrained["0.01"] + 0.05
  page = (run / "report.html").read_text()
  assert "The examples of this task are vectors or sequences." in page
  assert "A map of the embeddings" in page
  card = model_card.read(run / "release/saved_model" / model_card.PATH)
  assert (card.image_shape, card.preprocessing) == ((64, 1), "as_given")
  strangers.main(["", str(run), "0.1", "10"])
  # The first of four rows has neither a cohort nor a certainty.
  *of_rule, accepted, low, high = (
    capsys.readouterr().out.splitlines()[-4].split()[:7]
  )
  assert of_rule == ["10", "0.1", "False", "0.00"]
  assert float(low) < float(accepted) < float(high)
  own_picture.main(["", str(tmp_path / "classes.png"), str(run)])
  assert (tmp_path / "classes.png").read_bytes().startswith(b"\x89PNG")
  # Programs that read pictures say so in a line.
  ended = programs.call(
    "match",
    *(f"--saved_model={run / 'release/saved_model'}", f"--gallery={tmp_path}"),
    *(f"--query={tmp_path}", f"--output_csv={tmp_path / 'o.csv'}"),
  )
  programs.check_refused(ended, "--saved_model must have one input, images")
