"""Tests of what an extraction may be asked for."""

import pytest

from tff_fedemb import errors
from tff_fedemb.features.extraction import settings


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"output": "o.csv"}, "output must end with .npz or .tfrecord"),
    ({"test_output": ""}, "test_output must end with .*, found ''"),
    ({"task": "emnist"}, "one of them, found --task and --digits"),
    ({"data_dir": "d"}, "data_dir must be given with --task or --tfds"),
    ({"task_variant": "v"}, "task_variant must be given with --task"),
    ({"embedding": None}, "saved_model must be .* the two, found neither"),
    ({"saved_model": "m"}, "one of the two, found both"),
    ({"num_classes": 1}, "num_classes must be at least 2, or 0, found 1"),
    ({"random_features": 7}, "random_features must be even, found 7"),
    ({"gamma": 1e308}, r"gamma must be in .* found 1e\+308"),
    ({"test_share": 0.5}, "test_share must be given with --test_output"),
    ({"split": "test"}, "split must be given with --task only"),
    ({"tfds_split": "t"}, "tfds_split must be given with --tfds only"),
    ({"cache_dir": "c"}, "cache_dir must be given with --task only"),
    ({"random_features": 2}, "must be given with --embedding=random_fea"),
    ({"image_size": 8}, "image_size must not be given with"),
    ({"digits": False, "image_folder": "f"}, "image_size must be given"),
  ],
)
def test_flags_that_do_not_fit(options, message):
  flags = {"output": "o.npz", "digits": True, "embedding": "pixels"}
  with pytest.raises(errors.FieldError, match=message):
    settings.ExtractionConfig(**flags | options)


def test_defaults_are_set_where_they_apply():
  flags = {"output": "o.npz", "digits": True, "embedding": "pixels"}
  config = settings.ExtractionConfig(**flags)
  assert config.test_share is None and config.random_features is None
  flags |= {"embedding": "random_features", "test_output": "t.npz"}
  config = settings.ExtractionConfig(**flags)
  assert (config.test_share, config.random_features) == (0.25, 512)
  assert config.split is None and config.tfds_split is None
