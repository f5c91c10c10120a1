"""What an exported model computes, all of it in the TensorFlow graph; one module for each kind of task."""
