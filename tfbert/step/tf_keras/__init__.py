"""FineTuner over models of tf_keras, the extra `tf-keras`: nothing else in tfbert needs it."""
