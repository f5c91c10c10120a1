"""The step over models of Keras 3, with TensorFlow as its backend."""
