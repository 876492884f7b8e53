r"""Tells who is in the picture, with an exported model.

  python -m binaries.match --saved_model=runs/first/release/saved_model \
    --gallery=known --query=new --fpir=0.01 --output_csv=matches.csv

The gallery has one sub-folder of images for each class; queries are the images
in a folder and below it. For each of them the file gets who it is, or unknown
below the threshold that the model carries for a gallery of this size, the
nearest class with the similarity, and the runner-up. Where queries lie in
folders named like classes of the gallery, the program counts how many are
right.

With --cohort=others, a folder of people who are neither known nor asked for,
the threshold comes from their images, and more of the known are found.

For a large gallery, or one that changes, --index names a file of embeddings:

  python -m binaries.match --saved_model=runs/first/release/saved_model \
    --index=known.index --gallery=known --index_kind=hnsw
  python -m binaries.match --saved_model=runs/first/release/saved_model \
    --index=known.index --query=new --fpir=0.01 --output_csv=matches.csv

The first command adds what is new in the folder, embeds anew what has changed,
and tells what is gone, which --sync removes. --remove=ann removes a class, and
may be given several times. A search by hnsw tells how many of the nearest
images it finds.
"""

from collections.abc import Sequence

from binaries import command_line
from tff_fedemb.serving import match


def main(argv: Sequence[str]) -> None:
  """Runs the match that the flags describe."""
  command_line.execute(argv, __doc__, match.MatchConfig, match.execute)


if __name__ == "__main__":
  command_line.run(main)
