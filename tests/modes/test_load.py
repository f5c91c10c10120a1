"""`tfbert.load`: its answers are those of `--mode=predict` and of transformers' TensorFlow pipelines, in order."""

import functools
import random
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfbert
from tests.support.models import VOCAB, strategy_of
from tests.support.refusals import refused
from tests.support.runs import TOKENS, WORDS
from tests.support.saved_models import save_with_nan
from tests.support.served import random_model, save
from tests.support.transformers_4 import transformers_4
from tfbert import RuntimeConfig
from tfbert.devices.runtime import set_up
from tfbert.model.predictor import Predictor, direct_predictor
from tfbert.tasks import prediction as items_module
from tfbert.tasks.classification.classification import Classification, Regression
from tfbert.tasks.prediction import Item
from tfbert.tasks.question_answering.question_answering import QuestionAnswering
from tfbert.tasks.registry import entry_of
from tfbert.tasks.text_task import TextItems
from tfbert.tasks.token_classification.token_classification import TaggedItem, TokenClassification
from tfbert.tokens.tokenizer import TokenIds

TASKS = {
    "classes": (Classification(("low", "middle", "high")), 1),
    "pairs": (Classification(("other", "same")), 2),
    "scores": (Regression(), 1),
    "entities": (TokenClassification(("O", "B-PER", "I-PER", "B-LOC", "I-LOC")), 1),
    "speech": (TokenClassification(("NOUN", "VERB", "ADJ")), 1),
    "questions": (QuestionAnswering(tfbert.AnsweringConfig(doc_stride=4)), 2),
}
TEXTS = ["good film", "the plot was bad and very slow " * 3, "", "dull", "a Bright cast, not bad", "  ", "fine \ud800"]
rng = np.random.default_rng(0)
QUESTIONS = [
    {"question": "the film" * (i + 1), "context": " ".join(rng.choice(WORDS, n))} for i, n in enumerate((3, 40, 9))
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory with a 1-layer, hidden-32 model of each kind, as training saves one."""
    directory = tmp_path_factory.mktemp("models")
    tokens = TOKENS + [f"[unused{i}]" for i in range(VOCAB - len(TOKENS))]
    options = {"max_seq_length": 16, "tokens": tokens, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for seed, (name, (task, num_texts)) in enumerate(TASKS.items(), start=4):
        # With these seeds the model of entities finds many, of both types.
        save(random_model(task, num_texts=num_texts, seed=seed, **options), directory / name)
    return directory


@pytest.fixture(scope="module")
def models(saved):
    return {name: tfbert.load(saved / name) for name in TASKS}


def records(loaded, items):
    """What `--mode=predict` writes of items."""
    kind = entry_of(loaded.task).items(loaded._model)
    encoded = kind.encode(items)
    return list(kind.records(items, kind.predictions(loaded._outputs(encoded, rows=4), encoded)))


def assert_alike(found, expected):
    """The same answers but for the rounding of their scores."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert found[key] == (pytest.approx(value, abs=1e-5) if isinstance(value, float) else value), key
    else:
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)


@functools.cache
def pipeline(task, directory, **options):
    return transformers_4("pipeline")(task, model=str(directory), framework="tf", torch_dtype=None, **options)


def test_classes_are_those_of_the_pipeline_in_the_order_of_the_input(saved, models):
    model, texts = models["classes"], TEXTS[:-1]  # The pipeline's tokenizer refuses half a surrogate pair.
    expected = pipeline("text-classification", saved / "classes")(texts, truncation=True, max_length=16)
    assert len({round(answer["score"], 3) for answer in expected}) > 4
    for batch_size in (1, 4, 32):
        assert_alike(model(texts, batch_size=batch_size), expected)
    assert_alike([model(text) for text in texts], expected)
    assert [list(answer) for answer in model(texts)] == [["label", "score"]] * len(texts)
    assert_alike(model(texts[::-1]), expected[::-1])
    assert_alike(model("fine \ud800"), model("fine"))
    assert repr(model).endswith("classes', classification into 3 classes)")
    assert (model.task, model.label_names, model.max_seq_length) == ("classification", ("low", "middle", "high"), 16)


def test_top_k_is_that_of_the_pipeline(saved, models):
    pipe = pipeline("text-classification", saved / "classes")
    for k in (None, 1, 2, 7):
        expected = pipe(TEXTS[:2], truncation=True, max_length=16, top_k=k)
        assert_alike(models["classes"](TEXTS[:2], top_k=k), expected)
        assert_alike(models["classes"](TEXTS[0], top_k=k), expected[0])


def test_scikit_learns_methods_give_what_the_pipeline_gives(saved, models):
    texts, pipe = TEXTS[:-1], pipeline("text-classification", saved / "classes")
    expected = pipe(texts, truncation=True, max_length=16, top_k=None)
    model = models["classes"]
    assert model.classes_.tolist() == ["low", "middle", "high"]
    probabilities = model.predict_proba(Column(texts), batch_size=4)
    for row, answer in zip(probabilities, expected, strict=True):
        scores = {each["label"]: each["score"] for each in answer}
        np.testing.assert_allclose(row, [scores[name] for name in model.classes_], atol=1e-5)
    labels = model.predict(iter(texts))
    assert labels.tolist() == [answer[0]["label"] for answer in expected]
    assert labels.tolist() == model.classes_[probabilities.argmax(1)].tolist()
    assert model.predict([]).shape == (0,) and model.predict_proba([]).shape == (0, 3)
    scores = models["scores"].predict(texts)
    assert scores.dtype == np.float64 and scores.tolist() == [answer["score"] for answer in models["scores"](texts)]
    pairs = [("good film", "dull"), {"text": "a", "text_pair": "b"}]
    assert models["pairs"].predict(pairs).tolist() == [answer["label"] for answer in models["pairs"](pairs)]


NOT_TAKEN = [
    ("classes", "predict", "good film", r"takes many texts. Received: 'good film'. Pass \[text\]"),
    ("classes", "predict_proba", {"text": "good film"}, "takes many texts"),
    ("pairs", "predict", ("good film", "dull"), "takes many texts"),
    ("classes", "predict", [None], r"Received: .* in inputs\[0\]"),
    ("scores", "predict_proba", ["good film"], "Probabilities are of classes. .* Call predict"),
    ("entities", "predict", ["Ella sang"], "labels or numbers of whole texts. .*Call the model itself"),
    ("questions", "predict_proba", QUESTIONS, "Probabilities|whole texts"),
]


@pytest.mark.parametrize("name, method, inputs, message", NOT_TAKEN)
def test_what_scikit_learns_methods_do_not_take(models, name, method, inputs, message):
    with pytest.raises(tfbert.UsageError, match=message):
        getattr(models[name], method)(inputs)


class Column:
    """What of a pandas column is used: it has a length and is iterated over; its index may start anywhere."""

    def __init__(self, values):
        self._values = values

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return iter(self._values)


def test_every_iterable_gives_a_list_in_its_order(models):
    model, texts = models["classes"], ["good film", "bad", "a slow plot"]
    expected = [model(text) for text in texts]
    for inputs in (texts, tuple(texts), iter(texts), Column(texts), np.array(texts), np.array(texts, object)):
        assert_alike(model(inputs), expected)
    assert_alike(model(tuple(texts[:2])), expected[:2])  # No pair: the model takes single texts.
    assert_alike(model(dict.fromkeys(texts).keys()), expected)
    assert_alike(model([{"text": text} for text in texts]), expected)
    assert_alike(model(np.str_("bad")), expected[1])
    assert all(loaded([]) == loaded(iter(())) == [] for loaded in models.values())


def test_pairs_and_scores(saved, models):
    pairs = [("good film", "bad"), ("the cast " * 9, "a very dull plot was slow " * 2), ("", "fine")]
    as_dicts = [{"text": first, "text_pair": second} for first, second in pairs]
    expected = pipeline("text-classification", saved / "pairs")(as_dicts, truncation=True, max_length=16)
    model = models["pairs"]
    for inputs in (pairs, as_dicts, [list(pair) for pair in pairs], np.array(pairs), [pairs[0], *as_dicts[1:]]):
        assert_alike(model(inputs), expected)
    assert_alike(model(pairs[0]), expected[0])
    assert_alike(model(as_dicts[1]), expected[1])
    expected = pipeline("text-classification", saved / "scores")(TEXTS[:-1], truncation=True, max_length=16)
    assert_alike(models["scores"](TEXTS[:-1]), expected)
    assert {answer["label"] for answer in expected} == {"LABEL_0"}
    assert_alike(models["scores"](TEXTS[0], top_k=None), [expected[0]])


def test_entities_of_texts_are_those_of_predict_and_of_the_pipeline(saved, models):
    expected = [each["entities"] for each in records(models["entities"], [TaggedItem(texts=[text]) for text in TEXTS])]
    assert sum(map(len, expected)) > 5
    found = models["entities"](TEXTS, batch_size=3)
    assert_alike(found, expected)
    assert found[2] == found[5] == models["entities"]("") == models["entities"](["", " "])[1] == []
    pipe = pipeline("token-classification", saved / "entities", aggregation_strategy="first")
    for row in (0, 3, 4):  # Those of one row: the pipeline has another longest one.
        theirs = pipe(TEXTS[row])
        for entity in theirs:
            entity |= {"score": float(entity["score"]), "word": TEXTS[row][entity["start"] : entity["end"]]}
        assert_alike(found[row], theirs)


def test_entities_of_words_count_words(models):
    sentences = [text.split() for text in TEXTS[:5]]  # One is longer than a row, one has no words.
    written = records(models["entities"], [TaggedItem(words=words) for words in sentences])
    expected = [record["entities"] for record in written]
    assert max(e["end"] for e in expected[1]) > 16
    for inputs in (sentences, map(tuple, sentences), [np.array(words, str) for words in sentences]):
        assert_alike(models["entities"](inputs), expected)
    mixed = [sentences[0], TEXTS[0], sentences[1]]
    assert_alike(models["entities"](mixed), [expected[0], models["entities"](TEXTS[0]), expected[1]])
    for words, entities in zip(sentences, expected, strict=True):
        assert [e["word"] for e in entities] == [" ".join(words[e["start"] : e["end"]]) for e in entities]


def test_tags_that_are_no_entities_are_given_word_by_word(saved, models):
    text = "the Film, was slow"
    (whole,) = models["speech"]([text])
    places = [(word["word"], word["start"], word["end"]) for word in whole]
    assert places == [("the", 0, 3), ("Film", 4, 8), (",", 8, 9), ("was", 10, 13), ("slow", 14, 18)]
    theirs = pipeline("token-classification", saved / "speech")(text)
    assert [word["entity"] for word in whole] == [word["entity"] for word in theirs]
    assert [word["score"] for word in whole] == pytest.approx([float(word["score"]) for word in theirs], abs=1e-5)
    assert list(whole[0]) == ["entity", "score", "word", "start", "end"]
    (words,) = models["speech"]([["the", "Film", ",", "was", "slow"]])
    assert [(word["start"], word["end"]) for word in words] == [(i, i + 1) for i in range(5)]
    assert [word["score"] for word in words] == pytest.approx([word["score"] for word in whole], abs=1e-5)


def test_answers_to_questions_are_those_of_predict_and_of_the_pipeline(saved, models):
    expected = records(models["questions"], [Item(texts=[*asked.values()]) for asked in QUESTIONS])
    found = models["questions"](({**question, "id": 7} for question in QUESTIONS), batch_size=2)
    assert_alike(found, expected)
    assert [list(answer) for answer in found] == [["score", "start", "end", "answer"]] * 3
    for answer, question in zip(found, QUESTIONS, strict=True):
        assert answer["answer"] == question["context"][answer["start"] : answer["end"]] != ""
    assert_alike(models["questions"](QUESTIONS[1]), found[1])
    theirs = pipeline("question-answering", saved / "questions", max_answer_len=30)(**QUESTIONS[0])
    for key in ("start", "end", "answer"):
        assert theirs[key] == found[0][key], key


@pytest.mark.parametrize("directory", [{"runs/mine"}, None, 3, ["runs/mine"], b"runs/mine", {"model": "runs/mine"}])
def test_what_is_no_path_is_refused_in_a_line(directory):
    with refused("the path of a directory, or a name on the hub. Received: directory="):
        tfbert.load(directory)


def test_half_a_surrogate_pair_is_read_as_nothing_and_counts_as_a_character(models):
    text, without = "good \ud83dfilm bad\udc80 \udcff slow", "good film bad slow"
    for name in ("classes", "scores", "speech"):
        found, expected = models[name]([text, without])
        if name == "speech":
            assert [text[word["start"] : word["end"]] for word in found] == ["good", "film", "bad", "slow"]
            for word in (*found, *expected):
                del word["word"], word["start"], word["end"]
        assert_alike(found, expected)
    answer = models["questions"]({"question": text, "context": text})
    assert answer["answer"] == text[answer["start"] : answer["end"]] != ""


def test_options_of_a_task(saved, models):
    short = tfbert.load(saved / "questions", answering=tfbert.AnsweringConfig(max_answer_length=1))
    assert all(len(answer["answer"].split()) == 1 for answer in short(QUESTIONS))
    assert any(len(answer["answer"].split()) > 1 for answer in models["questions"](QUESTIONS))
    six_words = " ".join(TEXTS[1].split()[:6])
    assert tfbert.load(saved / "classes", max_seq_length=8)(TEXTS[1]) == models["classes"](six_words)


def test_inputs_are_taken_in_chunks(models, monkeypatch):
    model, texts = models["classes"], TEXTS * 3
    expected, sizes, taken = model(texts), [], []
    original = model._outputs

    def outputs(encoded, rows):
        sizes.append((len(encoded), len(taken)))
        return original(encoded, rows=rows)

    monkeypatch.setattr(model, "_outputs", outputs)
    monkeypatch.setattr(TextItems, "most", 5)
    assert_alike(model(taken.append(text) or text for text in texts), expected)
    assert sizes == [(5, 5), (5, 10), (5, 15), (5, 20), (1, 21)], "a generator is read as far as is needed"
    sizes.clear()
    monkeypatch.setattr(items_module, "CHUNK_CHARACTERS", 60)
    assert_alike(model(texts), expected)
    assert len(sizes) > 5 and sum(size for size, _ in sizes) == 21


def test_nothing_of_the_process_is_changed(saved, models, tmp_path):
    def state():
        draws = [random.random(), np.random.rand(), *keras.initializers.GlorotUniform()(shape=(3,)).numpy().tolist()]
        return [*draws, float(tf.random.uniform([])), keras.config.dtype_policy().name]

    def run(between):
        keras.config.set_dtype_policy("mixed_bfloat16")
        keras.utils.set_random_seed(5)
        between()
        return state()

    loaded, directory = [], shutil.copytree(saved / "classes", tmp_path / "classes")
    config = (directory / "config.json").read_text().replace('dropout_prob": 0.0', 'dropout_prob": 0.1')
    (directory / "config.json").write_text(config)
    assert run(lambda: loaded.append(tfbert.load(directory))) == run(lambda: None)
    assert run(lambda: loaded[0](TEXTS)) == run(lambda: None)
    assert loaded[0](TEXTS) == models["classes"](TEXTS), "float32 whatever the caller's own models compute in"
    set_up(RuntimeConfig(seed=1, mixed_precision=True))  # As another run of the process begins.
    assert loaded[0](TEXTS) == models["classes"](TEXTS)


class Table(Column):
    """What of a pandas table shows that it is one."""

    columns, ndim = ["text", "label"], 2


BAD = {
    "set": ("classes", {"good"}, r"many in an order.*Received: \{'good'\} \(set\)\. Pass .* of a set sorted"),
    "set of pairs": ("pairs", frozenset([("good", "bad")]), r"Received: frozenset\(.*of a set sorted"),
    "table": ("classes", Table(["text", "label"]), r"Received: .*Table.* of a table table\["),
    "none": ("classes", ["a", "b", None], r"needs a text.*Received: none for 'text' in inputs\[2\]\. Repair"),
    "nan": ("classes", np.array(["a", np.nan], object), r"Received: nan for 'text' in inputs\[1\]"),
    "bytes": ("classes", b"text", r"Received: 116 for 'text' in inputs\[0\]"),
    "number": ("classes", 3, r"or on many in an order.*Received: 3 \(int\)\. "),
    "nothing": ("scores", None, r"or on many in an order.*Received: None\. "),
    "pair": ("classes", ["a", ("b", "c")], r"takes single texts.*Received: a pair in inputs\[1\]\. Pass a text\."),
    "single": ("pairs", [("b", "c"), "a"], r"takes pairs of texts.*Received: a single text in inputs\[1\]\. Pass \{"),
    "lone": ("pairs", "a", r"takes pairs of texts.*Received: a single text in the input\."),
    "half": ("pairs", [{"text": "a", "text_pair": None}], r"Received: none for 'text_pair' in inputs\[0\]"),
    "three": ("pairs", [("a", "b", "c")], r"Received: 3 values in inputs\[0\]"),
    "keys": ("classes", [{"text": "a", "label": 1}], r"Received: the keys 'text', 'label' in inputs\[0\]\. Rename"),
    "word": ("entities", [["a"], ["a", None]], r"Received: none for 'words' in inputs\[1\]"),
    "context": ("questions", [{"question": "a"}], r"comes with its context.*the keys 'question' in inputs\[0\]"),
    "question": ("questions", "who?", r"comes with its context.*Received: 'who\?' in the input\. Pass both"),
    "blank": ("questions", {"question": " ", "context": "a"}, r"question must not be empty.*in the input\."),
    "missing": ("questions", [{"question": "a", "context": None}], r"Received: none for 'context' in inputs\[0\]"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(models, case, monkeypatch):
    name, inputs, message = BAD[case]
    monkeypatch.setattr(models[name], "_outputs", None)  # It is found before anything is computed.
    with refused(message):
        models[name](inputs)


def test_bad_options_and_models(saved, models, tmp_path):
    for model, options, message in (
        ("classes", {"top_k": 0}, "top_k must be a whole number of at least 1. Received: top_k=0"),
        ("questions", {"top_k": 3}, "top_k chooses among classes, and this is question answering"),
        ("entities", {"batch_size": 0.5}, "batch_size must be a whole number of at least 1. Received: batch_size=0.5"),
    ):
        with refused(message):
            models[model](["a"], **options)
    for options, message in (
        ({"answering": tfbert.AnsweringConfig(n_best_size=3)}, "n_best_size is for question_answering"),
        ({"tagger": tfbert.TaggingConfig()}, r"Received: tagger=TaggingConfig\(.*Pass one of multi_label=MultiLabelC"),
        ({"tagging": {"strict_entities": True}}, r"Received: tagging=\{'strict_entities': True\}"),
        ({"training": tfbert.TrainingConfig()}, "load takes a directory, max_seq_length and the options"),
        ({"multi_label": tfbert.MultiLabelConfig(top_k=3)}, "top_k says how files are read or written"),
        ({"choosing": tfbert.ChoosingConfig(choice_columns=("a",))}, "choice_columns says how files"),
    ):
        with refused(message):
            tfbert.load(saved / "classes", **options)
    assert tfbert.load(saved / "classes", answering=None)("good") == models["classes"]("good")
    for directory, message in ((tmp_path, "must hold config.json"), ("scratch/tiny", "needs a trained model")):
        with refused(message):
            tfbert.load(directory)
    with strategy_of(1).scope(), refused("in the scope of OneDeviceStrategy"):
        tfbert.load(saved / "classes")
    save_with_nan(saved / "classes", tmp_path / "broken", word="dull")
    with pytest.raises(tfbert.RunError, match=r"must be finite.*for id 2 of inputs"):
        tfbert.load(tmp_path / "broken")(["good", "bad", "dull"])


def test_direct_predictions_are_those_of_the_pipeline_of_data():
    """Of several outputs, and of no rows, which texts without words become."""

    def outputs(inputs, training):
        ids = tf.cast(inputs["input_ids"], tf.float32)
        width = tf.reduce_sum(tf.cast(inputs["attention_mask"], tf.float32), axis=1)
        return {"tags": ids[:, :, None] * tf.range(1.0, 6.0), "whole": tf.stack([width, ids[:, 1]], axis=1)}

    direct = direct_predictor(outputs, of_tokens={"tags"})
    staged = Predictor(outputs, strategy_of(1), rows_per_replica=4, of_tokens={"tags"})
    lengths = np.random.default_rng(0).integers(2, 14, 9)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    tokens = TokenIds(flat=np.arange(splits[-1], dtype=np.int32) % VOCAB, row_splits=splits, second_start=lengths)
    none = TokenIds(flat=np.zeros(0, np.int32), row_splits=np.zeros(1, np.int64), second_start=np.zeros(0, np.int32))
    expected = list(staged.stream([none, tokens, none]))
    for found, part in zip((direct(each, rows=4) for each in (none, tokens, none)), expected, strict=True):
        for name, values in part.items():
            np.testing.assert_array_equal(found[name], values)
            assert found[name].shape == values.shape
    assert expected[0]["tags"].shape == (0, 5) and expected[2]["whole"].shape == (0, 2)
    np.testing.assert_array_equal(expected[1]["tags"], tokens.flat[:, None] * np.arange(1.0, 6))
    np.testing.assert_array_equal(expected[1]["whole"], np.stack([lengths, tokens.flat[splits[:-1] + 1]], axis=1))
