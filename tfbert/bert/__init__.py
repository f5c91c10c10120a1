"""BERT as models of Keras 3, under the names that transformers 4 gave its TensorFlow models."""
