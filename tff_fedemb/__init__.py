"""User-level private image embeddings in TensorFlow Federated (DP-FedEmb).

Xu et al., "Learning to Generate Image Embeddings with User-level Differential
Privacy", CVPR 2023.
"""
