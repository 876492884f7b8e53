"""Clients that train on phones, and models converted for phones.

Runtime tflite trains with this room, and needs LiteRT, which the extra `lite`
of pyproject.toml installs. Serving converts models with it.

Read `client_file` first: a client's training as a TensorFlow Lite file, made of
the layers in `lite_layers`. `litert` runs the file for each client, by
`tflite_client` in a process without TensorFlow; the two exchange
`tensor_files`. `deltas` checks the updates that come back, and
`simulated_phones` feeds them into the learning process. `tflite` converts a
trained model.
"""
