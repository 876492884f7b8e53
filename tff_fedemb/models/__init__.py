"""Image backbones and the heads that are trained on top of them.

Tasks name a backbone. Algorithms build it, and the head, for a client's
training. Training and serving load weights into it.

Read `backbones` first, the registry of Keras models from images to embeddings.
`blocks` has the parts of the convolutional ones, `heads` the classifiers that
are trained on top and thrown away. `pretrained` starts a backbone from weights
that were trained elsewhere; `starts` holds weights that come with the library.
"""
