"""Small tokenizers of the kinds that `tokens/host` reads, trained in a second, in the files of real models."""

import functools
import json
import pathlib

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.support.texts import TEXTS

DOCS = pathlib.Path(__file__).parents[2] / "docs"
OF_ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
OF_BERT = ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"]


def training_texts():
    lines = (DOCS / "how-it-works.md").read_text().split("\n") + (DOCS / "troubleshooting.md").read_text().split("\n")
    return [*lines, *(text for text in TEXTS if text.isprintable())]


def save(tokenizer, directory, **config):
    directory.mkdir(exist_ok=True, parents=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def byte_level(special, *, add_prefix_space=False):
    return tokenizers.Tokenizer.from_str(_trained_byte_level(tuple(special), add_prefix_space))


@functools.cache
def _trained_byte_level(special, add_prefix_space):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=list(special), **options)
    tokenizer.train_from_iterator(training_texts(), trainer)
    return tokenizer.to_str()


def roberta(directory, *, add_prefix_space=False):
    tokenizer = byte_level(OF_ROBERTA, add_prefix_space=add_prefix_space)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, add_prefix_space)
    tokenizer.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])
    config = {"add_prefix_space": True} if add_prefix_space else {}
    return save(tokenizer, directory, tokenizer_class="RobertaTokenizer", model_max_length=512, **config)


def roberta_with_prefix_space(directory):
    return roberta(directory, add_prefix_space=True)


def put_around(tokenizer, tokens, single, pair):
    """The tokens as these templates of a text and of a pair say."""
    ids = [(token, tokenizer.token_to_id(token)) for token in tokens]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)


def modernbert(directory):
    """With runs of blanks and places for more as added tokens that are no special ones."""
    tokenizer = byte_level([])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(OF_BERT[:4])
    tokenizer.add_special_tokens([tokenizers.AddedToken("[MASK]", lstrip=True, special=True)])
    tokenizer.add_tokens([tokenizers.AddedToken(" " * n, normalized=True, special=False) for n in (8, 4, 2)])
    tokenizer.add_tokens([tokenizers.AddedToken(token, normalized=True) for token in ("[unused0]", "|||IP_ADDRESS|||")])
    put_around(tokenizer, ("[CLS]", "[SEP]"), "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    names = {f"{token[1:-1].lower()}_token": token for token in OF_BERT}
    names |= {"model_input_names": ["input_ids", "attention_mask"], "clean_up_tokenization_spaces": True}
    return save(tokenizer, directory, tokenizer_class="PreTrainedTokenizerFast", **names)


def unigram(directory, special, pre_tokenizer, **config):
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    blanks = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), blanks])
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.Metaspace()
    options = {"special_tokens": special[:-1], "unk_token": "<unk>", "show_progress": False}
    tokenizer.train_from_iterator(training_texts(), trainers.UnigramTrainer(vocab_size=700, **options))
    whole = json.loads(tokenizer.to_str())
    whole["model"]["vocab"].append(["<mask>", 0.0])  # As a piece too, at the end: so it is in XLM-R's file.
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(whole))
    tokenizer.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])
    put_around(tokenizer, ("<s>", "</s>"), "<s> $A </s>", "<s> $A </s> </s> $B </s>")
    return save(tokenizer, directory, **config)


def xlm_roberta(directory):
    pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return unigram(directory, OF_ROBERTA, pre_tokenizer, tokenizer_class="XLMRobertaTokenizer")


def camembert(directory):
    """With the tokens that CamemBERT's file begins with, and blanks that are part of what they precede."""
    special = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>", "<mask>"]
    more = ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"]
    options = {"tokenizer_class": "CamembertTokenizer", "additional_special_tokens": more}
    return unigram(directory, special, pre_tokenizers.Metaspace(), **options)


KINDS = {kind.__name__: kind for kind in (roberta, roberta_with_prefix_space, modernbert, xlm_roberta, camembert)}
OF_ENCODERS = {"roberta": roberta, "xlm-roberta": xlm_roberta, "camembert": camembert, "modernbert": modernbert}
"""By `model_type`, of the encoders that have not WordPiece."""
