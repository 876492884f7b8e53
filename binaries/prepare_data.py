"""Turns downloaded data sets into the files that the tasks read.

Google Landmarks v2 (any of images_000.tar ... images_499.tar with their
md5.images_NNN.txt, and the tables landmarks-user-160k.zip or
mini_gld_train_split.csv and mini_gld_test.csv), iNaturalist 2017 (the unpacked
folders of train_val_images.tar.gz and test2017.tar.gz, and
iNaturalist_train.csv and iNaturalist_test.csv) or DigiFace-1M (any of
subjects_*_imgs.zip or their unpacked folders):

  python -m binaries.prepare_data --task=gld --source_dir=downloads \
    --output_dir=data --dry_run
  python -m binaries.prepare_data --task=gld --source_dir=downloads \
    --output_dir=data

It says what it found, what is missing and how much disk it takes, before it
does anything. Killed at any time and started again, it goes on.
"""

from collections.abc import Sequence

from binaries import command_line
from tasks.prepare import preparing


def main(argv: Sequence[str]) -> None:
  """Prepares the data that the flags describe."""
  command_line.execute(
    argv, __doc__, preparing.PreparationConfig, preparing.execute
  )


if __name__ == "__main__":
  command_line.run(main)
