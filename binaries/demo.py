r"""Shows a web page to try a model: drop pictures, see who is who.

  python -m binaries.demo --run_dir=runs/first
  python -m binaries.demo --run_dir=runs/first --gallery=known --fpir=0.01

Drop two pictures, and the page says how similar they are to the model, and
whether that is enough for one class at the model's false accept rate. With a
gallery, one sub-folder of images for each class, drop one picture and see who
it is, or that it is a stranger.

The page is served to this machine alone, at http://127.0.0.1:8000/, and loads
nothing from elsewhere; pictures are not kept.
"""

from collections.abc import Sequence

from binaries import command_line
from tff_fedemb.serving import demo


def main(argv: Sequence[str]) -> None:
  """Serves the page that the flags describe."""
  command_line.execute(argv, __doc__, demo.DemoConfig, demo.execute)


if __name__ == "__main__":
  command_line.run(main)
