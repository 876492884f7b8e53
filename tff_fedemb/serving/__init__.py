"""Exported models in use: evaluated, matched, converted.

The programs `evaluate`, `match`, `demo` and `export` call this room; features
and report embed images with it. Nothing here trains, or costs privacy.

Read `saved_models` first: models as all of these load them, in the form of
TensorFlow, TensorFlow Lite or ONNX. `image_sources` gives them labelled images.
`evaluate`, `match`, `demo` and `lite_export` are the programs' work;
`gallery_index` is a file of known images, and `onnx_files` converts to ONNX.

`class_search` and `match_rules` find the nearest class of a gallery and decide
whether it is accepted; `exact_embeddings` is the reference that converted files
are compared with.
"""
