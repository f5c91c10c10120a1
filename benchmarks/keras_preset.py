"""A directory of Hugging Face's form, such as that of a run -> a preset of KerasHub, by KerasHub alone.

python benchmarks/keras_preset.py MODEL_DIRECTORY PRESET
"""

import json
import pathlib
import sys

import keras_hub


def write_preset(model: str | pathlib.Path, directory: str | pathlib.Path, **options: float) -> None:
    """Writes backbone and tokenizer; `options` replace those of the backbone, such as `dropout`."""
    backbone = keras_hub.models.BertBackbone.from_preset(str(model))
    if options:
        weights = backbone.get_weights()
        backbone = keras_hub.models.BertBackbone.from_config(backbone.get_config() | options)
        backbone.set_weights(weights)
    backbone.save_to_preset(str(directory))
    # KerasHub does not read that small letters come without accents.
    lowers = json.loads((pathlib.Path(model) / "tokenizer_config.json").read_text(encoding="utf-8"))["do_lower_case"]
    tokenizer = keras_hub.models.BertTokenizer.from_preset(str(model), strip_accents=lowers)
    tokenizer.save_to_preset(str(directory))


if __name__ == "__main__":
    write_preset(*sys.argv[1:3])
