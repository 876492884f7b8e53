"""Metrics of embeddings of held-out classes; no pictures are drawn here.

Training, serving and the report call this room with embeddings and labels.

Read `embedding` first: it makes embeddings of labelled images. Then
`verification` has recall at a false accept rate over all pairs, which `pairs`
counts exactly in little memory. `identification` and `recognition` are about
finding a person in a gallery, `retrieval` has other metrics of the field, and
`comparison` tells whether training has made a model better.
"""
