"""Image backbones and the heads that are trained on top of them.

Tasks name a backbone. Algorithms build it, and the head, for a client's
training. Training and serving load weights into it.

Read `backbones` first, the registry of Keras models from images to embeddings;
`blocks` has what the convolutional ones are made of. `heads` has what is
trained on top and thrown away. `pretrained` starts a backbone from weights that
were trained elsewhere, and `starts` has weights that are shipped.
"""
