"""Image backbones and the heads that are trained on top of them."""
