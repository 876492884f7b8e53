"""Weights to start from that are shipped: public, of random patterns alone.

`binaries/flagfiles/photos_start.flags` has the commands that make them. Baradad
et al. 2021, "Learning to See by Looking at Noise", start from such images too.
"""

import pathlib

PATH = pathlib.Path(__file__).parent / "conv4_48.h5"
# They fit images of so many pixels a side, in colour or grey.
BACKBONE, SIDE, EMBEDDING_DIM = "conv4", 48, 128
