"""What a run leaves for others: the model card, the upload to a hub, weights for PyTorch."""

import ast
import dataclasses
import json
import pathlib
import re
import subprocess
from unittest import mock

import huggingface_hub
import pytest
import yaml

import tfbert
from tests.support.flag_values import parsed
from tests.support.labelled import labelled
from tests.support.refusals import refused
from tests.support.task_runs import QUESTIONS, SENTENCES, arguments_of, command, write_tasks
from tfbert import ChoosingConfig, Config, DataConfig, HubConfig, ModelConfig, PretrainingConfig, TrainingConfig
from tfbert.output import output_dir
from tfbert.report.pages import _string, command_line, model_card, render
from tfbert.tasks.base import TaskData
from tfbert.tasks.classification.classification import Classification, Regression
from tfbert.tasks.multi_label.multi_label_classification import MultiLabelClassification
from tfbert.tasks.multiple_choice import MultipleChoice
from tfbert.tasks.pretraining import Pretraining
from tfbert.tasks.question_answering.question_answering import QuestionAnswering
from tfbert.tasks.registry import entry_of
from tfbert.tasks.token_classification.token_classification import TokenClassification

OPTIONS = {"version": "1", "model_type": "bert", "directory": pathlib.Path("runs/a")}
RESULTS = {"global_step": 1, "epoch": 1.0, "train_runtime": 1.0, "train_samples_per_second": 1.0}
RESULTS |= {"parameters": 20, "trained_parameters": 20}


def test_the_card_of_a_run_says_data_metrics_command_and_versions(runs):
    results = json.loads((runs / "single" / "all_results.json").read_text())
    head, body = (runs / "single" / "README.md").read_text().split("---\n", 2)[1:]
    assert "library_name: transformers\n" in head and "- accuracy\n" in head
    data = json.loads((runs / "single" / "run_config.json").read_text())["data"]
    assert f"| training | {data['train_file']} | 40 |" in body and data["train_file"].endswith("/train.tsv")
    assert f"| validation | {data['validation_file']} | 21 |" in body and data["validation_file"].endswith("/dev.tsv")
    assert f"| eval_accuracy | {results['eval_accuracy']:.4f} |" in body
    assert re.search(r"\| tensorflow \| 2\.\d+", body) and f"| tfbert | {tfbert.__version__} |" in body
    assert "gives single texts one of 2 classes" in body


def test_a_card_names_the_hubs_models_alone(tmp_path, monkeypatch):
    """Neither directories nor names of KerasHub's."""
    monkeypatch.chdir(tmp_path)
    data = TaskData(task=Regression(), train=labelled([1.0], ["x"]), validation={}, test=None, notes=())

    def card(name):
        config = Config(model=ModelConfig(model_name_or_path=name), data=DataConfig(dataset="demo"))
        return model_card(config, data, RESULTS, **OPTIONS)

    for name in ("runs/first", "bert-base-uncased"):
        assert f"\nbase_model: {name}\n" in card(name)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    for name in ("runs/first", "bert_base_en", "kaggle://keras/bert/keras/bert_base_en", "./model.keras"):
        assert "base_model" not in card(name)


def test_the_command_of_a_card_is_that_of_the_run(runs):
    card = (runs / "single" / "README.md").read_text()
    (line,) = re.findall(r"^    python run_finetune.py (.*)$", card, re.MULTILINE)
    run = Config.from_json((runs / "single" / "run_config.json").read_text())
    again = parsed(*line.split()).resolved()
    for part in ("model", "data", "training", "runtime"):
        assert getattr(again, part) == getattr(run, part)


PIPELINES = [
    (Classification(("a", "b")), ["text-classification"]),
    (MultiLabelClassification(("a", "b")), ["text-classification"]),
    (TokenClassification(("O", "B-X")), ["token-classification"]),
    (QuestionAnswering(), []),  # transformers 5 has no pipeline for it.
    (MultipleChoice(ChoosingConfig()), []),
    (Pretraining(next_sentence=True, options=PretrainingConfig()), ["fill-mask"]),
]


@pytest.mark.parametrize(("task", "pipelines"), PIPELINES)
def test_the_code_of_a_card_uses_what_transformers_5_has(task, pipelines):
    """Run with transformers 5.23 on models of all four: benchmarks/results/2026-11-23-tasks-splits-and-kills.md."""
    code = render(f"{entry_of(task.name).folder}/usage.md", task=task, num_texts=1, place='"THIS_DIRECTORY"')
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    named = [call.args[0].value for call in calls if getattr(call.func, "id", "") == "pipeline"]
    assert named == pipelines and "THIS_DIRECTORY" in code


def blocks_of(directory):
    """The two pieces of Python in a model's card."""
    return re.findall(r"^```python\n(.*?)^```$", (directory / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def value_of(code):
    """What the last line of a piece of Python gives."""
    *before, last = ast.parse(code).body
    names = {}
    exec(compile(ast.Module(before, []), "card", "exec"), names)
    return eval(compile(ast.Expression(last.value), "card", "eval"), names)


@pytest.fixture(scope="module")
def of_other_tasks(tmp_path_factory):
    """Directories of runs of the tasks that `runs` lacks, by task."""
    directory = tmp_path_factory.mktemp("others")
    write_tasks(directory)
    for task in (SENTENCES, QUESTIONS):
        command(*arguments_of(directory, task, task), "--max_steps=1")
    return directory


def test_the_code_of_a_card_runs_where_the_model_was_made(runs):
    own, of_transformers = blocks_of(runs / "single")
    assert value_of(own).keys() == {"label", "score"}
    assert own.splitlines()[0] == "import tfbert" and "THIS_DIRECTORY" not in of_transformers
    pair = ast.literal_eval(Classification(("a", "b")).example(2))
    assert tfbert.load(runs / "pairs")(pair).keys() == {"label", "score"}


@pytest.mark.slow
@pytest.mark.parametrize("task", [SENTENCES, QUESTIONS])
def test_the_code_of_other_cards_runs_too(of_other_tasks, task):
    own, _ = blocks_of(of_other_tasks / task)
    found = value_of(own)
    assert isinstance(found, list) if task == SENTENCES else {"answer", "score"} <= found.keys()


@pytest.mark.slow
def test_the_code_for_transformers_needs_what_the_card_says(runs, of_other_tasks):
    pytest.importorskip("torch")
    for directory in (runs / "single", of_other_tasks / SENTENCES, of_other_tasks / QUESTIONS):
        value_of(blocks_of(directory)[1])


def test_a_directory_is_written_as_python_reads_it():
    for name in ("runs/a", 'runs/"b" c', "runs/\\d", "runs/é\n"):
        assert ast.literal_eval(_string(name)) == name
    assert _string("runs/a") == '"runs/a"'


def test_a_command_line_is_quoted_and_says_no_more_than_needed():
    model, training = ModelConfig(model_name_or_path="a model"), TrainingConfig(class_weights=(1.0, 2.5))
    expected = "python run_finetune.py '--model_name_or_path=a model' '--dataset=x y' --class_weights=1.0,2.5"
    assert command_line(Config(model=model, data=DataConfig(dataset="x y"), training=training)) == expected


ODD_LABELS = ("<script>alert(1)</script>", "a\n\n## b", "x|y", "`tick``s`", "not_b", " ", "\u202ea\ud800")


def test_nothing_in_labels_and_names_is_taken_for_markup(tmp_path, monkeypatch):
    """Labels come from the data, names of sets from files: neither is the card's author."""
    monkeypatch.chdir(tmp_path)
    file = "<b>_x_|[y](z)\n---.tsv"
    (tmp_path / file).touch()
    config = Config(model=ModelConfig(model_name_or_path="scratch/tiny"), data=DataConfig(train_file=file))
    train = dataclasses.replace(labelled(None, ["x"]), name="<img>|\n| a_b |")
    sets = {"validation_- x: y\n---": train}
    data = TaskData(task=Classification(ODD_LABELS), train=train, validation=sets, test=None, notes=())
    results = RESULTS | {"eval_- x: y\n---_accuracy": 0.5}
    card = model_card(config, data, results, version="1", model_type="electra", directory=pathlib.Path("runs/a"))
    card.encode()
    head, body = card.removeprefix("---\n").split("\n---\n", 1)
    expected = {"library_name": "transformers", "pipeline_tag": "text-classification", "tags": ["electra", "tfbert"]}
    assert yaml.safe_load(head) == expected | {"metrics": ["- x: y\n---_accuracy"]}
    lines = body.splitlines()
    assert lines[1] == r"# scratch/tiny fine-tuned on \<b\>\_x\_\|\[y\](z)\\n---.tsv"
    assert lines[3] == "A model of the type `electra` that gives single texts one of 7 classes."
    assert lines[4] == (
        r"Classes, in the order of the logits: `<script>alert(1)</script>`, `a\n\n## b`, `x|y`, ``` `tick``s` ```, "
        r"`not_b`, `   `, `\u202ea\ud800`."
    )
    assert r"| training | \<img\>\|\\n\| a_b \| | 1 |" in lines
    assert r"| eval\_- x: y\\n---\_accuracy | 0.5000 |" in lines
    (command,) = (line for line in lines if line.startswith("    python"))
    assert command.endswith(r"$'--train_file=<b>_x_|[y](z)\u000a---.tsv'")
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True).stdout
    assert words.split("\0")[-2] == f"--train_file={config.data.train_file}"


def test_an_upload_holds_the_model_and_nothing_else(tmp_path):
    directory = tmp_path / "mine"
    for name in ("checkpoints", "adapter"):
        (directory / name).mkdir(parents=True)
    for name in (*output_dir.UPLOADED, "log.jsonl", "checkpoints/model.safetensors"):
        (directory / name).touch()
    api = mock.create_autospec(huggingface_hub.HfApi, instance=True)
    api.create_repo.return_value = huggingface_hub.RepoUrl("https://huggingface.co/me/mine")
    url = output_dir.upload(directory, HubConfig(push_to_hub=True, hub_private_repo=True), api)
    assert url is api.upload_folder.return_value.commit_url
    api.create_repo.assert_called_once_with("mine", private=True, exist_ok=True)
    asked = api.upload_folder.call_args.kwargs
    assert (asked["repo_id"], asked["folder_path"]) == ("me/mine", directory)
    files = [str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()]
    sent = huggingface_hub.utils.filter_repo_objects(files, allow_patterns=asked["allow_patterns"])
    assert sorted(sent) == sorted(output_dir.UPLOADED), "as the library filters them"


def test_an_upload_that_fails_says_how_to_try_again(tmp_path):
    api = mock.create_autospec(huggingface_hub.HfApi, instance=True)
    api.whoami.side_effect = api.create_repo.side_effect = OSError("no route\nto host")
    with refused("Received: no route. Run hf auth login"):
        output_dir.check_login(api)
    with refused("uploaded to 'me/x': no route. .*hf upload me/x", tfbert.RunError):
        output_dir.upload(tmp_path, HubConfig(push_to_hub=True, hub_model_id="me/x"), api)
