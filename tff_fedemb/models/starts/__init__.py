"""Weights that come with the library: public, trained on random patterns alone.

`binaries/flagfiles/photos_start.flags` has the commands that make them. Baradad
et al. 2021, "Learning to See by Looking at Noise", start from such images too.
"""

import pathlib

PATH = pathlib.Path(__file__).parent / "conv4_48.h5"
# They fit images of any size, which the backbone resizes, in colour or grey.
BACKBONE, EMBEDDING_DIM = "conv4_48", 128
