"""Writes a model with random weights and a tokenizer learned from a file's texts: what `tasks_in_turns.py` and
`steps_in_turns.py` take as --model, of the size of a pretrained one. Its scores mean nothing.

    peer/bin/python benchmarks/peers/random_encoder.py --model_type=roberta --train_file=sst2/train.tsv --output_dir=DIR

All sizes but the number of layers are those of transformers' default configuration, the base model's.
"""

import argparse
import json
import pathlib
import sys

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, set_seed

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from tfbert.data.files import read_file  # noqa: E402

_OF_BERT = {kind: f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")}
_OF_ROBERTA = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
_CLASSES = {
    "bert": ("BertTokenizer", {}),
    "distilbert": ("DistilBertTokenizer", {}),
    "roberta": ("RobertaTokenizer", {"max_position_embeddings": 514, "type_vocab_size": 1}),
    "modernbert": ("PreTrainedTokenizerFast", {}),
}
"""The tokenizer's class, and what a base model has that the configuration's defaults have not."""


def main() -> None:
    """Writes the directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_type", choices=list(_CLASSES), required=True)
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--num_hidden_layers", type=int, default=4)
    parser.add_argument("--num_pieces", type=int, default=20_000)
    args = parser.parse_args()
    directory, (kind, values) = pathlib.Path(args.output_dir), _CLASSES[args.model_type]
    directory.mkdir(parents=True)
    special = _OF_ROBERTA if args.model_type == "roberta" else _OF_BERT
    tokenizer = learned(read_file(args.train_file).text, special, args.model_type, args.num_pieces)
    ids = {name: tokenizer.token_to_id(token) for name, token in special.items()}
    tokenizer.save(str(directory / "tokenizer.json"))
    inputs = ["input_ids", "attention_mask"] + ["token_type_ids"] * (args.model_type == "bert")
    named = {f"{name}_token": token for name, token in special.items()}
    said = {"tokenizer_class": kind, "model_input_names": inputs, "do_lower_case": True} | named
    (directory / "tokenizer_config.json").write_text(json.dumps(said), encoding="utf-8")
    if special is _OF_BERT and args.model_type != "modernbert":
        words = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        (directory / "vocab.txt").write_text("".join(f"{word}\n" for word, _ in words), encoding="utf-8")
    ends = {"bos_token_id": ids["cls"], "eos_token_id": ids["sep"]}
    ends |= {f"{name}_token_id": ids[name] for name in ("pad", "cls", "sep")}
    config = AutoConfig.for_model(args.model_type, num_hidden_layers=args.num_hidden_layers, **values, **ends)
    set_seed(0)
    AutoModel.from_config(config).save_pretrained(directory)


def learned(texts: list[str], special: dict[str, str], model_type: str, num_pieces: int) -> tokenizers.Tokenizer:
    """A tokenizer of the model's kind: WordPiece in lower case, or BPE of bytes."""
    first = {"vocab_size": num_pieces, "special_tokens": list(special.values()), "show_progress": False}
    if model_type in ("bert", "distilbert"):
        tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder, trainer = decoders.WordPiece(), trainers.WordPieceTrainer(**first)
    else:
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        tokenizer.decoder, trainer = decoders.ByteLevel(), trainers.BpeTrainer(**first, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    ends = [(special[name], tokenizer.token_to_id(special[name])) for name in ("sep", "cls")]
    if model_type == "roberta":
        tokenizer.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=False)
    else:
        tokenizer.post_processor = processors.BertProcessing(*ends)
    return tokenizer


if __name__ == "__main__":
    main()
