"""What an exported model computes, all of it in the TensorFlow graph: a module for each kind of task."""
