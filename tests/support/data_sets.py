"""Small data sets in TensorFlow Datasets' own files."""

import numpy as np
import tensorflow_datasets as tfds


def prepare(data_dir, name, features, splits, **arguments):
    """Prepares a data set on disk with TFDS's own machinery; afterwards TFDS knows it from its files alone."""

    class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        code_path = None  # no checksum file next to this one
        pkg_dir_path = None

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _):
            return {split: self._generate_examples(rows) for split, rows in splits.items()}

        def _generate_examples(self, rows):
            yield from enumerate(dict(zip(features, row, strict=True)) for row in rows)

    Builder.name = name
    Builder(data_dir=data_dir).download_and_prepare(**arguments)


PAIR = {"premise": tfds.features.Text(), "idx": np.int32, "hypothesis": tfds.features.Text()}
PAIR |= {"label": tfds.features.ClassLabel(num_classes=3)}
