"""Clients on phones: an optional part, of which nothing else is made.

Runtime tflite trains by this room, and serving converts models with it. It
needs LiteRT for the first; pyproject.toml has it as the extra `lite`.

Read `client_file` first: a client's training as a TensorFlow Lite file, made of
the layers in `lite_layers`. `litert` runs it for each client, by
`tflite_client` in a process without TensorFlow, with `tensor_files` between
them; `deltas` checks what comes back, and `simulated_phones` is the process
around it. `tflite` converts a trained model.
"""
