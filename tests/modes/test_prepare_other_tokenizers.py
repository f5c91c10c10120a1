"""Records of a corpus by tokenizers that are not WordPiece, and runs on them: what transformers makes of the same text,
the same bytes however they are made, the same weights however a batch is split."""

import json
import pickle

import numpy as np
import pytest
import transformers

import tfbert
from tests.support.corpora import WIDTH, ListedCorpus, config, content, prepare_files
from tests.support.encoders import make
from tests.support.flag_values import configured
from tests.support.host_tokenizers import KINDS, OF_ENCODERS, roberta
from tests.support.runs import assert_same_bits, run_to, undrawn, weights
from tests.support.splits import assert_same_update
from tests.support.texts import TEXTS
from tfbert.config.tasks import PRETRAINING
from tfbert.corpus.manifest import Recipe
from tfbert.corpus.records import open_records
from tfbert.corpus.shards import tokenize
from tfbert.errors import UsageError
from tfbert.model.head import save_pretrained
from tfbert.modes.predict import evaluate_model
from tfbert.modes.pretrain import prepare_records, pretrain, with_records
from tfbert.tasks.pretraining import Pretraining
from tfbert.tokens.host import read_tokenizer
from tfbert.tokens.tokenizer import BertTokenizer
from tfbert.train.run import finetune

SENTENCES = [
    *("A film of 1999.", "It's </s> as good as <mask> or [SEP]!", "Ünïted cafés, 北京 and 東京。", "x  y, z"),
    *(text for text in (" ".join(text.split()) for text in TEXTS) if text and text.isprintable()),
]
DOCUMENTS = [SENTENCES[i : i + 1 + i % 5] for i in range(0, len(SENTENCES) - 6, 2)]
CORPUS = ListedCorpus({"a": DOCUMENTS[::2], "b": DOCUMENTS[1::2]})


def model_in(directory, model_type, kind="MaskedLM", more_rows=0):
    """A small model, by default with a head of words, and its tokenizer."""
    if model_type in OF_ENCODERS:
        tokenizer = read_tokenizer(OF_ENCODERS[model_type](directory / "source"))
    else:
        words = sorted({word for text in SENTENCES for word in text.lower().split() if word.isalpha()})
        tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, ".", ",", "##s"])
    sizes = {"vocab_size": tokenizer.vocab_size + more_rows, "pad_token_id": tokenizer.pad_id}
    sizes["max_position_embeddings"] = 64
    sizes["num_hidden_layers"] = 2 if model_type == "modernbert" else 1  # Whose second one attends locally.
    save_pretrained(make(model_type, kind, **sizes), tokenizer, directory / "model")
    return directory / "model"


def prepared(model, out, **corpus):
    """Records of the sentences, by the command's way."""
    text = out.parent / "corpus.txt"
    text.write_text("\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n")
    prepare_files(text, out, model_name_or_path=model, **corpus)
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_has_the_tokens_of_its_sentences_in_one_text(kind, tmp_path):
    tokenizer = read_tokenizer(KINDS[kind](tmp_path / "source"))
    tokenizer.save(tmp_path / "saved")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    plain = [d for d in DOCUMENTS if kind not in ("xlm_roberta", "camembert") or "</s>" not in str(d)]  # See `host`.
    recipe = Recipe.of_config(config(), tokenizer, num_shards=1, model_type="roberta")
    assert not recipe.random_next_sentence
    found = tokenize(pickle.loads(pickle.dumps(recipe)), ["\n".join(document).encode() for document in plain])
    want = theirs([" ".join(document) for document in plain], add_special_tokens=False)["input_ids"]
    ends = found.sentence_ends[found.document_ends - 1]
    assert [part.tolist() for part in np.split(found.tokens, ends[:-1])] == want
    assert len(found.sentence_ends) == sum(map(len, plain))
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.mask_id}
    texts = [b"A </s> <mask>.\n<s> [CLS] [SEP]<pad> [PAD] b"]
    assert not special & {*tokenize(recipe, texts).tokens.tolist()}


@pytest.mark.parametrize("kind", ["modernbert", pytest.param("camembert", marks=pytest.mark.slow)])
def test_records_hold_whole_sentences_between_special_tokens(kind, tmp_path):
    tokenizer = read_tokenizer(KINDS[kind](tmp_path / "source"))
    options = config(random_next_sentence=None, learn_vocab=100, short_seq_prob=0.0)
    made = prepare_records(CORPUS, tokenizer, options, tmp_path / "records", model_type="modernbert")
    assert made["totals"]["random_next_sentences"] == 0 and made["options"]["random_next_sentence"] is False
    assert json.loads((tmp_path / "records" / "tokenizer.json").read_text()) == tokenizer._whole
    assert not {"vocab.txt", "tokenizer_config.json"} & {*content(tmp_path / "records")}
    records = open_records([str(tmp_path / "records")])
    records.check_tokenizer(tokenizer)
    assert not records.has_pairs
    found = records.read(np.arange(len(records)))
    texts = [tokenizer.ids_of([" ".join(document)])[0].tolist() for document in DOCUMENTS]
    texts = [f" {' '.join(map(str, ids))} " for ids in texts]
    for ids, length in zip(found.ids, found.lengths, strict=True):
        assert (ids[0], ids[length - 1]) == (tokenizer.cls_id, tokenizer.sep_id)
        assert (ids[length:] == tokenizer.pad_id).all()
        parts = " ".join(map(str, ids[1 : length - 1])).split(f" {tokenizer.sep_id} ")
        assert all(any(f" {part} " in text for text in texts) for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [{"num_processes": 2}, {"engine": "beam"}])
def test_processes_and_beam_make_the_same_bytes(engine, tmp_path):
    if "engine" in engine:
        pytest.importorskip("apache_beam")
    tokenizer = read_tokenizer(roberta(tmp_path / "source"))
    for name, own in (("one", {}), ("other", engine)):
        prepare_records(CORPUS, tokenizer, config(random_next_sentence=False, **own), tmp_path / name)
    assert content(tmp_path / "one") == content(tmp_path / "other")


def test_records_of_another_tokenizer_are_refused(tmp_path):
    model = model_in(tmp_path, "roberta")
    records = prepared(model, tmp_path / "records")
    given, own = open_records([str(records)]), read_tokenizer(model)
    Pretraining().encode(given, own, WIDTH)
    other = read_tokenizer(KINDS["modernbert"](tmp_path / "other"))
    with pytest.raises(UsageError, match="with another one, its tokenizer.json. Pass the --vocab_file, or --model"):
        Pretraining().encode(given, other, WIDTH)
    # The same vocabulary, but texts are normalised, or another token is the mask.
    for change in ({"normalizer": {"type": "Lowercase"}}, {}):
        spoiled = type(own)(own._whole | change, own._config | ({} if change else {"mask_token": "<unk>"}), "x")
        with pytest.raises(UsageError, match="must be cased and split as .* made with tokenizer.json="):
            Pretraining().encode(given, spoiled, WIDTH)
    scratch = configured(model="scratch/tiny", task=PRETRAINING, train_records=records)
    with pytest.raises(UsageError, match="with train_records of another tokenizer, .*tokenizer.json. Pass --model"):
        with_records(scratch)


NO_PAIRS = {"roberta": "for a tokenizer without types for two texts. Drop --random_next"}
NO_PAIRS |= {"distilbert": "random_next_sentence=True for a distilbert model"}


@pytest.mark.parametrize("model_type, line", NO_PAIRS.items(), ids=NO_PAIRS)
def test_pairs_for_models_without_a_head_for_them_are_refused(model_type, line, tmp_path):
    with pytest.raises(UsageError, match=line):
        prepared(model_in(tmp_path, model_type), tmp_path / "records", random_next_sentence=True)
    assert not (tmp_path / "records").exists() or not content(tmp_path / "records")


def test_electra_has_no_head_for_words(tmp_path):
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    save_pretrained(make("electra", "Model", vocab_size=6), tokenizer, tmp_path / "model")
    with pytest.raises(UsageError, match="electra model has no head for this. Received: ElectraForMaskedLM"):
        prepared(tmp_path / "model", tmp_path / "records")


def run_of(model, records, out, **options):
    """Four updates of six records, with dropout."""
    files = {"model": model, "train_records": records, "validation_records": records, "output_dir": out}
    steps = {"global_batch_size": 6, "max_steps": 4, "learning_rate": 1e-3, "warmup_ratio": 0.0, "save_steps": 2}
    return configured(task=PRETRAINING, dropout=0.1, **files, **steps, **options)


SPLIT = [pytest.param(name, True, marks=pytest.mark.slow) for name in (*OF_ENCODERS, "distilbert")]


@pytest.mark.parametrize("model_type, splits", [("roberta", False), *SPLIT])
def test_a_run_is_evaluated_and_fills_in_words_and_splits_and_resumes(
    model_type, splits, tmp_path, monkeypatch, logged
):
    """By default tasks/pretraining/test_pretraining splits batches of records and evaluates models on them, and
    tests/train resumes runs."""
    model = model_in(tmp_path, model_type)
    pairs = {"random_next_sentence": False} if model_type in OF_ENCODERS else {}
    records = prepared(model, tmp_path / "records", **pairs)
    with undrawn():
        results = pretrain(run_of(model, records, tmp_path / "whole"))
    assert not [line for line in logged() if "next-sentence" in line or "new weights" in line]
    if splits:
        again = with_records(run_of(model, records, tmp_path / "cut"))
        with undrawn():
            run_to(2, again, monkeypatch)
            finetune(again)
        assert_same_bits(weights(tmp_path / "whole"), weights(tmp_path / "cut"))
        split = {"strategy": "mirrored", "num_replicas": 2, "gradient_accumulation_steps": 3}
        with undrawn():
            pretrain(run_of(model, records, tmp_path / "split", **split))
        begun, one, two = (weights(path) for path in (model, tmp_path / "whole", tmp_path / "split"))
        assert_same_update(begun, one, two, "float32", no_gradient=(".key.bias", ".k_lin.bias"))
        saved = {"model": tmp_path / "whole", "task": PRETRAINING, "validation_records": records}
        found = evaluate_model(configured("evaluate", **saved))
        assert found["eval_loss"] == pytest.approx(results["eval_loss"], rel=1e-6)
    assert "eval_next_sentence_accuracy" not in results and 0 < results["eval_loss"] < 10

    loaded, tokenizer = tfbert.load(tmp_path / "whole"), read_tokenizer(tmp_path / "whole")
    text = f"A film of {tokenizer.mask_token} and"
    answers = loaded(text, top_k=3)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "whole")(text, return_tensors="np")
    place = theirs["input_ids"][0].tolist().index(tokenizer.mask_id)
    net = tfbert.TFAutoModelForMaskedLM.from_pretrained(tmp_path / "whole")
    inputs = {name: theirs[name] for name in ("input_ids", "attention_mask")}
    logits = np.asarray(net(inputs).logits[0, place], np.float64)
    chances = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    assert [answer["token"] for answer in answers] == np.argsort(-chances)[:3].tolist()
    assert [answer["score"] for answer in answers] == pytest.approx(np.sort(chances)[:-4:-1], rel=1e-4)
    card = (tmp_path / "whole" / "README.md").read_text()
    assert "{fill.tokenizer.mask_token}" in card and "[MASK]" not in card
    shown = json.loads((tmp_path / "whole" / "report.json").read_text())["evaluation"]
    parts = [part for record in shown["filled"] for part in record]
    assert "\u0120" not in str(shown) and all(" " not in part["instead"] for part in parts)
    texts = "".join("".join(part["text"] for part in record) for record in shown["filled"])
    assert any(sentence in texts for sentence in SENTENCES) or model_type == "distilbert"


def test_pairs_train_models_without_a_head_for_them_on_words_and_say_so(tmp_path, logged):
    model = model_in(tmp_path, "distilbert", kind="Model", more_rows=3)
    prepare_records(CORPUS, read_tokenizer(model), config(num_shards=1), tmp_path / "records")
    run = with_records(run_of(model, tmp_path / "records", tmp_path / "run"))
    with pytest.raises(UsageError, match="next_sentence_accuracy"):
        finetune(run.changed({"metric_for_best_model": "next_sentence_accuracy"}))
    with undrawn():
        finetune(run.changed({"max_steps": 1, "validation_records": ()}))
    lines = " ".join(logged())
    assert "pairs, but a distilbert model has no head for next sentences" in lines
    assert "The new head starts at the frequencies of words in" in lines
