"""What people read: numbers equal the files', texts are escaped, comparisons are NumPy's, and no run is lost to it."""

import html.parser
import json
import pathlib
import re

import numpy as np
import pytest
from sklearn import metrics

from tests.support.labelled import labelled
from tests.support.refusals import refused
from tests.support.reports import make_run, note
from tfbert.data.in_memory import given_table
from tfbert.report import pages
from tfbert.report.__main__ import main
from tfbert.report.compare import by_score, compare, comparison, tables
from tfbert.report.run_files import MAX_TEXT, MAX_WORST, differing, evaluation_facts, read_run, used
from tfbert.tasks.classification.classification import Classification, Regression
from tfbert.tasks.question_answering.question_answering import Candidates, QuestionAnswering
from tfbert.tasks.question_answering.squad import read_questions
from tfbert.tasks.token_classification.token_classification import SentenceExamples, TokenClassification

NASTY = "<script>alert('x')</script> & \"quoted\" </td> $x_1$"


class Page(html.parser.HTMLParser):
    """Tags, visible text and table cells of a page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.rows, self.text, self._is_cell = [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._is_cell = True

    def handle_endtag(self, tag):
        self._is_cell = self._is_cell and tag not in ("td", "th")

    def handle_data(self, data):
        self.text.append(data)
        if self._is_cell:
            self.rows[-1][-1] += data


@pytest.fixture
def made(tmp_path):
    """A function: a run of this name and of what `make_run` takes, as it is read."""
    return lambda name, **options: read_run(make_run(tmp_path / name, **options))


def configure(run, **parts):
    """The run again, with other options in its file; an option that is None is taken out."""
    path = pathlib.Path(run.name) / "run_config.json"
    config = json.loads(path.read_text())
    for part, options in parts.items():
        options = config.get(part, {}) | options
        config[part] = {name: value for name, value in options.items() if value is not None}
    path.write_text(json.dumps(config))
    note(path.parent)
    return read_run(run.name)


def columns(table):
    """The cells below each name."""
    return dict(zip(table.names, zip(*table.body, strict=True), strict=True))


def test_a_page_shows_every_text_runs_none_and_needs_no_other_file(made, drawn):
    run = made("<b>run</b> $a_1$", nasty=NASTY)
    written = pages.run_page(run)
    page, style = Page(written), written.split("</style>")[0]
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "b", "link", "iframe", "img", "object"}
    assert not [value for _, attrs in page.tags for name, value in attrs.items() if name.startswith("on")]
    for tag, attrs in page.tags:
        assert all(attrs.get(name, "#").startswith("#") for name in ("src", "href", "xlink:href")), (tag, attrs)
        assert tag != "g" or "id" not in attrs
    assert "url(" not in style and "@import" not in style
    assert [row[-1] for row in page.rows].count(NASTY + NASTY) == 1  # The one wrong example: text and its pair.
    text = "".join(page.text)
    assert "<b>run</b> $a_1$" in text
    assert text.count(NASTY) >= 6  # Device, command, label, column, text, pair.
    both = Page(comparison([run, made("_other", nasty=NASTY)]).html())
    assert not {tag for tag, _ in both.tags} & {"script", "b"}
    assert "".join(both.text).count("<b>run</b> $a_1$") >= 2  # In both tables.


def evaluated_run(directory, task, examples, predictions):
    """The page of a run whose report shows an evaluation of another task; no text of it is a script."""
    note(make_run(directory), evaluation=evaluation_facts(task, "validation", examples, predictions))
    page = Page(pages.run_page(read_run(directory)))
    assert not {tag for tag, _ in page.tags} & {"script"}
    return page


def test_a_page_of_tags_shows_both_taggings(tmp_path):
    task = TokenClassification(("O", "B-X", "I-X", f"B-{NASTY}"))
    words = [["a", NASTY, "b"], ["c"]]
    examples = SentenceExamples(name="x", words=words, labels=np.array([1, 2, 0, 3]))
    page = evaluated_run(tmp_path / "run", task, examples, np.eye(4, dtype=np.float32)[[1, 0, 0, 3]] * 9)
    rows = [[cell.strip() for cell in row] for row in page.rows]
    assert ["X", "0.0000", "0.0000", "0.0000", "1"] in rows and [NASTY, "1.0000", "1.0000", "1.0000", "1"] in rows
    marked = [(attrs["class"], attrs["title"]) for tag, attrs in page.tags if tag == "span" and "title" in attrs]
    assert marked == [("entity", "B-X"), ("entity wrong", "I-X"), ("entity", "B-X"), ("entity wrong", "O")]
    assert "The 1 worst of 1 wrong" in "".join(page.text)


def test_a_page_of_answers_marks_the_right_and_the_given_one(tmp_path):
    context = f"so {NASTY} it was, they said"
    rows = [{"id": "a", "question": NASTY, "context": context, "answers": [{"text": NASTY, "answer_start": 3}]}]
    rows += [{"id": "b", "question": "who?", "context": context, "answers": [{"text": "so", "answer_start": 0}]}]
    examples = read_questions(given_table("train", rows))
    numbers = dict.fromkeys(("start_logit", "end_logit", "score", "null_start_logit", "null_end_logit", "null_score"))
    places = {"row_splits": np.arange(3), "char_start": np.array([0, 0]), "char_end": np.array([2, 2])}
    given = Candidates(**places, **dict.fromkeys(numbers, np.ones(2)))
    page = evaluated_run(tmp_path / "run", QuestionAnswering(), examples, given)
    marks = [attrs["class"] for tag, attrs in page.tags if tag == "span" and "class" in attrs]
    assert sorted(marks) == ["answer", "wrong"]
    (worst,) = [row for row in page.rows if row[-1].strip() == context]
    assert worst[:5] == ["row 1", "1", NASTY, NASTY, "so"]


def test_numbers_are_those_of_the_log(made, tmp_path, monkeypatch):
    run, drawn = made("run"), {}

    def plot(lines, *, x_label, y_label, **options):
        drawn.update({label or y_label: line for label, line in lines.items()})
        return ""

    monkeypatch.setattr(pages, "line_plot", plot)
    page = Page(pages.run_page(run))
    records = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    names = {"training loss": "loss", "learning rate": "learning_rate", "examples/s": "examples_per_second"}
    for label, name in (names | {"validation loss": "eval_loss", "accuracy": "eval_accuracy"}).items():
        assert [*zip(*drawn[label], strict=True)] == [(r["step"], r[name]) for r in records if name in r]
    trained = [r["loss"] for r in records if r["kind"] == "train"]
    evaluated = [(r["step"], r["eval_loss"], r["eval_accuracy"]) for r in records if r["kind"] == "eval"]
    expected = [(step, loss, *scores) for (step, *scores), loss in zip(evaluated, trained, strict=True)]
    start = page.rows.index(["step", "epoch", "training loss", "eval_loss", "eval_accuracy"]) + 1
    shown = [[float(cell) for cell in row] for row in page.rows[start : start + len(expected)]]
    np.testing.assert_allclose([[row[0], *row[2:]] for row in shown], expected, rtol=1e-3)
    assert re.search(r'<tr class="kept"><td class="n">(\d+)<', pages.run_page(run))[1] == "20"
    assert ["train_runtime", "12"] in page.rows


def test_facts_of_a_classifier_are_scikit_learns():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 4)), rng.integers(0, 3, 200)
    texts = [f"text {i}" for i in range(200)]
    texts[int(np.argmax(-logits[np.arange(200), labels]))] = "long " * MAX_TEXT
    facts = evaluation_facts(Classification(("a", "b", "c", "d")), "dev", labelled(labels, texts), logits)
    predicted = logits.argmax(axis=1)
    np.testing.assert_array_equal(facts["confusion"], metrics.confusion_matrix(labels, predicted, labels=range(4)))
    assert facts["num_wrong"] == (predicted != labels).sum()
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    losses = [metrics.log_loss([labels[i]], [probabilities[i]], labels=range(4)) for i in range(200)]
    wrong = [i for i in np.argsort(losses)[::-1] if predicted[i] != labels[i]][:MAX_WORST]
    assert [(e["row"], e["where"]) for e in facts["worst"]] == [(i, f"row {i + 1}") for i in wrong]
    np.testing.assert_allclose([e["error"] for e in facts["worst"]], [losses[i] for i in wrong], atol=1e-4)
    first = facts["worst"][0]
    assert (first["label"], first["prediction"]) == ("abcd"[labels[wrong[0]]], "abcd"[predicted[wrong[0]]])
    assert all(len(example["text"]) <= MAX_TEXT + 2 for example in facts["worst"])


def test_facts_of_a_regression_are_the_largest_errors():
    labels, logits = np.array([1.0, 2.0, 3.0]), np.array([[1.5], [2.0], [0.0]])
    facts = evaluation_facts(Regression(), "dev", labelled(labels, ["a", "b", "c"]), logits)
    found = [(e["text"], e["label"], e["prediction"], e["error"]) for e in facts["worst"]]
    assert found == [("c", "3", "0", 3.0), ("a", "1", "1.5", 0.5)]
    assert "confusion" not in facts


def test_speed_up_and_efficiency_are_numpys(made):
    speeds, replicas = np.array([120.0, 200.0, 90.0, 431.5]), np.array([1, 2, 1, 4])
    runs = [made(f"run{i}", speed=speeds[i], replicas=int(replicas[i]), accuracy=0.5 + i / 10) for i in range(4)]
    rows = compare(runs)
    expected = speeds / 90 / replicas
    assert rows[0].efficiency is None, "its base has no fewer replicas: that is no scaling"
    np.testing.assert_allclose([row.efficiency for row in rows[1:]], expected[1:])
    np.testing.assert_allclose([row.speed_up for row in rows], speeds / 90), "of those of one replica, the slower"
    rows = compare(runs[1:])
    np.testing.assert_allclose([row.efficiency for row in rows], expected[1:])

    mixed = made("mixed", speed=400.0, replicas=2, precision="mixed_float16")
    alone = compare([*runs, mixed])[-1]
    assert (alone.efficiency, alone.speed_up) == (None, None), "the others differ in more than devices"
    alone = compare([*runs, configure(made("larger", speed=999.0), training={"global_batch_size": 64})])[-1]
    assert (alone.efficiency, alone.speed_up) == (None, None), "another batch is another work; one run does not scale"
    weak = configure(made("weak", speed=170.0, replicas=2), training={"global_batch_size": 64})
    assert compare([runs[2], weak])[1].efficiency == 170 / 2 / 90, "each replica has as many examples"

    quality, speed, *_ = tables(runs)
    cells = columns(quality) | columns(speed)
    assert cells["speed-up"] == tuple(f"{s / 90:.2f}" for s in speeds)
    assert cells["accuracy"] == ("0.5000", "0.6000", "0.7000", "0.8000")
    assert cells["efficiency"] == ("–", "111%", "100%", "120%")
    written = comparison(runs).html()
    assert "the best by eval_accuracy first" in written
    names, *rows = Page(written).rows
    assert tuple(row[names.index("speed-up")] for row in rows[:4]) == cells["speed-up"][::-1], "the best first"


OTHER_WORK = {
    "model": {"model_name_or_path": "another"},
    "data": {"max_seq_length": 16, "train_file": "other.tsv", "text_column": ["title"], "batching": "packed"},
    "training": {"gradient_accumulation_steps": 4, "gradient_checkpointing": True, "optimizer": "lamb", "lora_rank": 8},
}


@pytest.mark.parametrize("part, name", [(part, name) for part, options in OTHER_WORK.items() for name in options])
def test_a_run_without_its_base_has_no_speed_up(part, name, made):
    """Other work is no base: 227% on one replica says nothing of devices."""
    one, two = made("one", speed=100.0), made("two", speed=190.0, replicas=2)
    slow = configure(made("slow", speed=44.0), **{part: {name: OTHER_WORK[part][name]}})
    assert [row.efficiency for row in compare([two, slow])] == [None, None]
    rows = compare([one, two, slow])
    assert [row.speed_up for row in rows] == [1.0, 1.9, None]
    assert [row.efficiency for row in rows] == [1.0, 0.95, None]


def test_devices_may_take_the_place_of_micro_batches(made):
    """Two micro-batches on one device, and one on each of two, are the same work in the same pieces."""
    one = configure(made("one", speed=50.0), training={"gradient_accumulation_steps": 2})
    two, whole = made("two", speed=95.0, replicas=2), made("whole", speed=60.0)
    assert [(row.speed_up, row.efficiency) for row in compare([one, two])] == [(1.0, 1.0), (1.9, 0.95)]
    rows = compare([one, two, whole])
    assert [row.speed_up for row in rows] == [1.0, 95 / 60, 1.0], "over the one that is cut alike, where there is one"


def test_the_best_run_comes_first_whatever_the_metric(made):
    scores = {"a": (0.5, 1), "b": (0.9, 3), "c": (0.9, 2)}
    runs = a, b, c = [made(name, accuracy=score, eval_loss=loss) for name, (score, loss) in scores.items()]
    assert by_score(runs) == [c, b, a], "the lower loss decides a tie"
    for run in runs:
        run.facts["decisive_metric"] = "eval_loss"
    assert by_score(runs) == [a, c, b]
    runs[0].facts["decisive_metric"] = "eval_accuracy"
    assert by_score(runs) == runs
    text = comparison(runs).text()
    assert "different metrics, eval_accuracy and eval_loss: they are in the order given" in text
    assert "Quality and time:" in text


@pytest.mark.parametrize("decisive, name", [("accuracy", "test_accuracy"), ("matched_macro_f1", "test_macro_f1")])
def test_scores_on_the_test_set_stand_beside_the_others(made, decisive, name):
    scores = {f"eval_{decisive}": 0.75, "test_f1": 0.1, "test_loss": 0.2, name: 0.7}
    runs = [made("tested", **scores), made("not")]
    runs[0].facts["decisive_metric"] = f"eval_{decisive}"
    (quality, *_), (without, *_) = tables(runs), tables(runs[1:])
    assert columns(quality)[name.replace("_", " ")] == ("0.7000", "–")
    assert [title for title in quality.names if title.startswith("test")] == [name.replace("_", " ")]
    assert not any(title.startswith("test") for title in without.names)


def test_runs_that_do_other_work_are_named(made):
    other = configure(made("other"), model={"model_name_or_path": "scratch/mini"})
    text = comparison([made("one"), other]).markdown()
    assert "differ in model_name_or_path: their speeds are for different work" in text
    assert "| 1: one | scratch/tiny |" in text and "| 2: other | scratch/mini |" in text


def test_every_setting_in_which_runs_differ_is_named(made):
    one = made("one")
    old = configure(made("old"), runtime={"keep_freed_memory": None, "seed": None}, output={"output_dir": "elsewhere"})
    assert differing([one, old]) == []  # What a file lacks was at its default; another directory is another name.
    other = configure(made("other"), training={"label_smoothing": 0.1, "warmup_steps": 3}, output={"logging_steps": 7})
    other = configure(other, until_step={"9": {"max_steps": 4}})
    expected = {"label_smoothing": [0.0, 0.1], "warmup_steps": [0, 3], "logging_steps": [10, 7]}
    assert dict(differing([one, other])) == expected
    *_, table = tables([one, other])
    assert table.names == ["run", *dict(differing([one, other]))]
    assert columns(table)["label_smoothing"][1] == "0.1"
    text = comparison([one, other]).markdown()
    assert "The training loss of run 2 includes label smoothing of 0.1;" in text
    assert "Up to update 9, run 2 had max_steps 4." in text


def test_many_runs_with_long_names_share_narrow_tables(made):
    runs = [configure(made(f"deep/a_run_with_a_long_name_{i}"), runtime={"seed": i}) for i in range(11)]
    quality, _, speed, settings = tables(runs)
    assert quality.body[10][0] == "11: a_run_with_a_long_name_10"
    assert max(len(table.names) for table in (quality, speed, settings)) <= 10
    assert settings.names == ["run", "seed"] and [row[1] for row in settings.body] == [*map(str, range(11))]


def test_a_page_shows_the_options_that_are_not_at_their_default(made):
    run = made("run")
    assert not used(run).keys() & {"predict", "export", "hub"} and "warmup_ratio" not in used(run)["training"]
    run = configure(run, training={"warmup_steps": 3, "max_grad_norm": 0.0, "of another version": 1})
    page = pages.run_page(configure(run, until_step={"9": {"max_steps": 4}}))
    rows = Page(page).rows
    assert all(row in rows for row in (["warmup_steps", "3"], ["max_grad_norm", "0"], ["of another version", "1"]))
    assert not [row for row in rows if row[0] in ("warmup_ratio", "output_file", "export_float16", "xla")]
    assert "Up to update 9, the run had max_steps 4." in page


def test_quality_stands_before_speed(made):
    run = configure(made("run", train_loss=0.5, eval_loss=0.4), training={"label_smoothing": 0.1})
    page = pages.run_page(run)
    places = [page.index(f">{title}<") for title in ("Training and validation loss", "Classes", "Most wrong", "Speed")]
    assert places == sorted(places) and page.index(">Throughput<") > places[-1]
    assert "with dropout and label smoothing of 0.1; the validation loss" in page
    run.facts["dropout"] = 0.0
    assert "the point before, with label smoothing of 0.1; the validation loss" in pages.run_page(run)
    run = configure(run, training={"label_smoothing": 0.0})
    run.facts["dropout"] = 0.0
    page = pages.run_page(run)
    assert "the point before; the validation loss is the mean over all examples." in page
    results = [row[0] for row in Page(page).rows if row and row[0] in run.results]
    assert results[:3] == ["train_loss", "eval_loss", "eval_accuracy"]


def test_the_score_is_what_the_run_decided_by(tmp_path):
    run = make_run(tmp_path / "mnli", eval_matched_accuracy=0.7, eval_matthews_correlation=0.3)
    for decisive, value in (("matched_accuracy", 0.7), ("matthews_correlation", 0.3)):
        note(run, decisive_metric=f"eval_{decisive}")
        assert read_run(run).decisive == f"eval_{decisive}"
        name = decisive.replace("_", " ")
        assert [name, f"{value:.4f}"] in [list(pair) for pair in pages._headline(read_run(run))]
        assert name in comparison([read_run(run)] * 2).markdown()
    note(run, decisive_metric=None)
    assert read_run(run).decisive == ""


def test_wide_tables_fit_on_paper(made):
    runs = [made("one"), made("two")]
    style, _, body = pages.run_page(runs[0]).partition("</style>")
    assert "A4 portrait" in style and "A4 landscape" in comparison(runs).html()
    assert re.findall(r"([^{}]*){[^{}]*nowrap", style) == ["\ntd.n "], "names of columns may break"
    assert '<th class="n">eval_<wbr>accuracy</th>' in body


def test_the_command_compares(tmp_path, capsys):
    make_run(tmp_path / "one")
    make_run(tmp_path / "two", speed=150.0)
    both, new = [str(tmp_path / "one"), str(tmp_path / "two")], tmp_path / "new" / "deep"
    assert main([*both, str(tmp_path / "none"), f"--output_dir={new}"]) == 2
    assert not new.parent.exists()
    assert main([*both, f"--output_dir={new}"]) == 0
    out = capsys.readouterr().out
    assert (new / "comparison.md").read_text() in out
    assert "have its curves" not in out and "report.html has its curves" in (new / "comparison.html").read_text()
    assert main([*both, f"--output_dir={new / 'comparison.md'}"]) == 2
    assert re.fullmatch("[^\n]*output_dir must be a directory[^\n]*, a file. Pass another.\n", capsys.readouterr().err)
    page = str(new / "comparison.md")
    assert main([*both, page, f"--output_dir={tmp_path / 'again'}"]) == 0
    assert (tmp_path / "again" / "comparison.md").read_text() == (new / "comparison.md").read_text()
    assert f"left out, as a run is a directory: {page}\n" in capsys.readouterr().err
    assert (main([page]), main([str(tmp_path / "one")])) == (2, 0)
    assert [path.parent.name for path in tmp_path.rglob("report.html")] == ["one"]


def test_runs_on_different_examples_are_not_averaged(made):
    runs = [configure(made(f"seed-{seed}"), runtime={"seed": seed}) for seed in (0, 1)]
    for data, is_same in (((1, 1), True), ((1, 2), False)):
        for run, crc32 in zip(runs, data, strict=True):
            run.facts["data"] = {"evaluation_crc32": crc32}
        text = comparison(runs).text()
        assert ("standard deviation" in text) == is_same
        assert ("The runs were evaluated on different examples" in text) != is_same


def test_a_terminal_sees_no_markdown(tmp_path, capsys, monkeypatch):
    runs = [str(make_run(tmp_path / name, speed=speed)) for name, speed in (("a_*b*_[1]", 100.0), ("two", 150.0))]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main([*runs, f"--output_dir={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert "1: a_*b*_[1]" in out and "train_loss" not in out
    assert not re.search(r"\\|\| |&amp;|<wbr>|:---", out)
    assert "Speed-up: examples/s over those of the run of fewest replicas" in out
    assert "a\\_\\*b" in (tmp_path / "comparison.md").read_text()


def test_bad_directories_are_one_line_each(tmp_path, capsys):
    good, unfinished, damaged, other = (make_run(tmp_path / n) for n in ("good", "unfinished", "damaged", "other"))
    (unfinished / "all_results.json").unlink()
    (damaged / "log.jsonl").write_text('{"step": 1, "kind": "train"}\n{"step": 2, "ki')
    (other / "all_results.json").write_bytes(b"\xff\xfe")
    before = sorted(tmp_path.rglob("*"))
    assert main([*map(str, (good, unfinished, tmp_path / "none", damaged, other, good / "log.jsonl"))]) == 2
    out, errors = capsys.readouterr()
    for line, name in zip(errors.splitlines(), ("unfinished", "none", "damaged", "other", "good"), strict=True):
        assert "Received: " in line and str(tmp_path / name) in line
    assert out == "" and sorted(tmp_path.rglob("*")) == before


CHANGED = {"all_results.json": "0.8", "log.jsonl": "0.01", "report.json": "one", "run_config.json": "0.1"}


@pytest.mark.parametrize("name, changed", CHANGED.items())
def test_numbers_that_were_changed_later_are_refused(tmp_path, name, changed):
    run = make_run(tmp_path / "run", accuracy=0.8)
    results = json.loads((run / "all_results.json").read_text())
    (run / "all_results.json").write_text(json.dumps(results, indent=7, sort_keys=True))  # Its form does not matter.
    assert read_run(run).results == results
    path = run / name
    assert changed in path.read_text()
    path.write_text(path.read_text().replace(changed, changed.replace("0", "2").replace("n", "u"), 1))
    with refused(rf"as it wrote them. Received: .*{name}', changed later"):
        read_run(run)


def test_a_run_of_an_earlier_version_is_refused(tmp_path):
    run = make_run(tmp_path / "run")
    facts = json.loads((run / "report.json").read_text())
    (run / "report.json").write_text(json.dumps({name: fact for name, fact in facts.items() if name != "crc32_of"}))
    with refused("report.json must be of this version. Received: .* without checksums. Read the report.html"):
        read_run(run)
    (run / "report.json").unlink()
    with refused("A finished run is .* without report.json. Pass"):
        read_run(run)


def test_a_report_of_an_unknown_task_is_refused_in_one_line(tmp_path):
    note(make_run(tmp_path / "run"), evaluation={"task": "translation"})
    with refused("A task is one of .*Received: 'translation'"):
        pages.run_page(read_run(tmp_path / "run"))


def test_the_time_of_a_resumed_run_says_since_when():
    assert [pages.training_time(facts) for facts in ({}, {"train_runtime": 12.0})] == [None, "12.0 s"]
    assert pages.training_time({"train_runtime": 12.0, "resumed_at_step": 1500}) == "12.0 s since step 1,500"
