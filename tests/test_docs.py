"""README and docs/: every command parses and keeps the rules, every link leads somewhere, the tutorials run."""

import ast
import dataclasses
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

import tfbert
from tests.support.flag_values import parsed
from tests.support.processes import ROOT, output_of
from tfbert.commandline import Reader
from tfbert.config.run import FINETUNE, PRETRAIN, Config

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
OF_FINE_TUNING = ("classification", "tagging", "question_answering", "multiple_choice")
TUTORIALS = dict.fromkeys(OF_FINE_TUNING, "## Files") | {"pretraining": "## Continue"}
"""The pages whose commands run on generated files, and the heading that their first part ends before."""


WORDS = {"finetune": ["run_finetune.py"], "pretrain": ["run_pretraining.py"]}
WORDS |= {mode: ["run_finetune.py", f"--mode={mode}"] for mode in FINETUNE.modes}
WORDS |= {mode: ["run_pretraining.py", f"--mode={mode}"] for mode in PRETRAIN.modes if mode not in WORDS}


def commands(text):
    """The commands of blocks, indented or in a shell's fence: lists of words, from `python` on, or as the scripts that
    `tfbert WORD` stands for."""
    text = re.sub(r"```(?:bash|sh|shell|console)\n(.*?)```", lambda found: indented(found[1]), text, flags=re.DOTALL)
    lines = re.findall(r"^    ((?:.*\\\n)*.*)", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    found = []
    for line in lines:
        if re.search(r"\bpython\b", line):
            words = shlex.split(line.replace("\\\n", " "))
            found.append(words[words.index("python") :])
        elif match := re.search(rf"\btfbert ({'|'.join(WORDS)})(?= -| \\|$).*", line, re.DOTALL):
            found.append(["python", *WORDS[match[1]], *shlex.split(match[0].replace("\\\n", " "))[2:]])
    return found


def blocks_of(page):
    """Its blocks of Python."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def indented(text):
    return "".join(f"    {line}\n" for line in text.splitlines())


def documented():
    found = {f"{page.name}: {' '.join(words)}": words for page in PAGES for words in commands(page.read_text())}
    return {name: words for name, words in found.items() if any(word.startswith("run_") for word in words)}


@pytest.mark.parametrize("words", documented().values(), ids=documented().keys())
def test_a_command_parses(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flags").symlink_to(ROOT / "flags")  # Presets are named from there.
    for files in (word.partition("=")[2] for word in words if re.match(r"--(\w+_files?=|label_names=.*\.txt$)", word)):
        for name in files.split(","):
            path = tmp_path / name.replace("*", "a")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    (script,) = (word for word in words if word.startswith("run_"))
    (command,) = (each for each in (FINETUNE, PRETRAIN) if each.script == script)
    config = parsed(*words[words.index(script) + 1 :], command=command)
    if any(word.startswith("--flagfile") for word in words) and script == "run_finetune.py":
        assert config.data.train_file or config.data.dataset not in ("", "demo"), "it would train on the demo's"


def test_commands_are_found():
    pages = {name.split(":")[0] for name in documented()}
    assert {"README.md", *(f"{page}.md" for page in TUTORIALS)} <= pages
    assert commands("    zcat a | python x.py \\\n        --b='c d'\n") == [["python", "x.py", "--b=c d"]]
    assert commands("```sh\npython x.py\n```\n") == [["python", "x.py"]]
    words = ["python", "run_pretraining.py", "--mode=prepare", "--seed=1"]
    assert commands("    docker run x tfbert prepare \\\n        --seed=1\n") == [words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_calls_in_pythons_blocks_name_arguments_that_exist(page):
    options = {"model", *(field.name for part in Config.classes().values() for field in dataclasses.fields(part))}
    for block in blocks_of(page):
        tree = ast.parse(block)
        refused = {node for other in ast.walk(tree) if isinstance(other, ast.Try) for node in ast.walk(other)}
        for call in {node for node in ast.walk(tree) if isinstance(node, ast.Call)} - refused:
            name = ast.unparse(call.func)
            if name in ("tfbert.finetune", "tfbert.pretrain", "tfbert.evaluate", "tfbert.sweep", "tfbert.load"):
                known = inspect.signature(getattr(tfbert, name.removeprefix("tfbert."))).parameters.keys() | options
                given = {keyword.arg for keyword in call.keywords} - {None}
                assert given <= known, f"{name}: {given - known}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = [link or picture for link, picture in re.findall(r'\]\(([^)]+)\)|src="([^"]+)"', page.read_text())]
    for link in (link for link in links if "://" not in link):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        headings = re.findall(r"^#+ (.*)", target.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {heading.lower().replace(" ", "-") for heading in headings}, link


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_a_link_to_a_page_says_what_is_there(page):
    assert not re.findall(r"\[[\w./-]+\.md\]\(.*?\)", page.read_text())


def test_the_sites_commands_fit_a_screen():
    """They are broken before flags, and stay the same commands."""
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("site_hook", ROOT / "docs" / "site.py")
    site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site)
    folded = 0
    for page in PAGES:
        text = re.sub(r"\]\(.*?\)", "]()", page.read_text())
        file = SimpleNamespace(abs_src_path=str(page), src_uri=page.name)
        shown = site.on_page_markdown(text, SimpleNamespace(file=file), None, None)
        assert commands(shown) == commands(text)
        lines = [line for line in shown.splitlines() if re.match(r" {4,}.*\bpython .* --", line)]
        assert all(len(line) <= site.WIDTH + 2 for line in lines), "but for one long argument"
        folded += len(shown.splitlines()) - len(text.splitlines())
    assert folded > 20


def argument_lists(value):
    """The lists of words `finetune ...` in a parsed YAML file."""
    if isinstance(value, list):
        return [value] if value[:1] == ["finetune"] else [found for part in value for found in argument_lists(part)]
    return [found for part in value.values() for found in argument_lists(part)] if isinstance(value, dict) else []


@pytest.mark.parametrize("page", ["docs/kubernetes.md", "examples/docker/compose.yaml"])
def test_the_containers_arguments_parse(page):
    parts = re.split("```(?:yaml)?\n?", (ROOT / page).read_text())
    (words,) = {tuple(words) for words in argument_lists(yaml.safe_load(parts[page.endswith(".md")]))}
    reader = Reader(FINETUNE)
    reader.read_line(words[1:])
    assert words[0] == "finetune" and not reader.problems and reader.values["strategy"] == "multi_worker"


def test_the_image_has_all_that_is_built():
    """The Dockerfile copies what setup.py needs, and .dockerignore lets it through."""
    copied = re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    needed = {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "flags", "tfbert"}
    assert names == let_through == needed


def test_every_page_is_in_the_index():
    names = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    index = (ROOT / "docs" / "README.md").read_text()
    assert not {name for name in names if f"({name})" not in index}
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()
    site = (ROOT / "mkdocs.yml").read_text()
    assert not {name for name in names if f": {name}\n" not in site}, "mkdocs.yml lists the pages of the site"


def test_every_public_name_is_in_the_reference():
    listed = set(re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE))
    named = {f"tfbert.{name}" for name in tfbert.__all__} | {f"tfbert.callbacks.{n}" for n in tfbert.callbacks.__all__}
    assert not named - listed
    assert {part.__name__ for part in Config.classes().values()} <= set(tfbert.__all__)


def test_a_cell_of_readme_has_one_number_and_one_link():
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| ")]
    cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")[1:]]
    assert len(cells) > 50
    for cell in cells:
        assert cell.count("](") <= 1, cell
        assert len(re.findall(r"\d[\d.,]*", re.sub(r"\]\(.*?\)", "", cell))) <= 1, cell


def test_scripts_for_more_gpus_train_the_same_updates():
    """So that a difference in the score would be the devices' doing."""
    scripts = list((ROOT / "docs" / "slurm").glob("*.sbatch"))
    options = [set(re.findall(r"--(?:global_batch_size|learning_rate)=\S+", path.read_text())) for path in scripts]
    assert len(scripts) == 4 and all(len(each) == 2 and each == options[0] for each in options)


def test_readme_has_two_commands_that_set_up_all():
    """One runs the main job, one passes the tests, which is also the last step of CI."""
    text = (ROOT / "README.md").read_text()
    first, second = re.findall(r"^    (pip install .*)", text, re.MULTILINE)
    assert re.fullmatch(r"pip install -e \. && python run_finetune\.py( --\w+(=\w+)?)*", first)
    assert second == "pip install -e '.[test]' && pytest"
    steps = (ROOT / ".ci" / "run").read_text().splitlines()
    assert steps[-1] == "pytest" and "set -euo pipefail" in steps
    (site,) = (step for step in steps if "mkdocs build" in step)
    assert not re.search(r" (-q|--quiet)\b", site), "it would hide the warnings that strict counts"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_the_pictures_are_small():
    pictures = {path.name: path.stat().st_size for path in (ROOT / "docs" / "images").iterdir()}
    assert pictures.keys() >= {"one_line.png", "terminal.svg", "report.png"}
    assert max(pictures.values()) < 300_000


@pytest.mark.slow
@pytest.mark.parametrize("page, end", TUTORIALS.items(), ids=TUTORIALS)
def test_a_tutorial_runs(page, end, tmp_path):
    """As it stands, but for the number of updates."""
    write_data(tmp_path)
    first, mark, _ = (ROOT / "docs" / f"{page}.md").read_text().partition(end)
    assert mark
    for words in commands(first):
        if words[1] == "run_finetune.py" or words[1] == "run_pretraining.py":
            trains = "--mode" not in " ".join(words)
            in_shell(shlex.join([*words, *["--max_steps=6"] * trains]), tmp_path)
    assert (tmp_path / "runs").exists()


@pytest.mark.slow
def test_what_comes_after_training_runs(tmp_path):
    """The page's commands, pipes included, and its Python as one script, with models of the tutorials."""
    write_data(tmp_path)
    for page in OF_FINE_TUNING:
        train = commands((ROOT / "docs" / f"{page}.md").read_text())[0]
        in_shell(shlex.join([*train, "--max_steps=6"]), tmp_path)
    in_shell("python run_pretraining.py --max_steps=3 --output_dir=runs/bert", tmp_path)
    text, blocks = (ROOT / "docs" / "after_training.md").read_text(), blocks_of("docs/after_training.md")
    lines = [line for line in re.findall(r"^    (.*)", text, re.MULTILINE) if "run_finetune.py" in line]
    others = {"onnx": "onnxruntime", "tflite": "ai_edge_litert"}
    missing = {name for name, package in others.items() if importlib.util.find_spec(package) is None}
    assert len(lines) == 11 and len(blocks) == 6
    lines = [line for line in lines if not any(f"--export_format={name}" in line for name in missing)]
    blocks = [block for block in blocks if not (missing and "onnxruntime" in block)]
    for line in lines:
        in_shell(line, tmp_path)
    output_of("\n".join(["table = {'review': ['good', 'bad']}", *blocks]), directory=tmp_path)


@pytest.mark.slow
def test_the_page_on_callbacks_runs(tmp_path):
    (block,) = blocks_of("docs/tracking.md")
    assert "\n60 0." in output_of(block, directory=tmp_path)


@pytest.mark.slow
def test_readmes_doors_open(tmp_path):
    """Its Python, with few updates and models that need no download in the place of those of hubs."""
    fit, run = blocks_of("README.md")
    rows = "texts, labels = [f'film {i} is {word}' for i in range(32) for word in ('good', 'bad')], [1, 0] * 32\n"
    imports = "import keras, keras_hub, tensorflow as tf, tfbert\n"
    run = run.replace("bert-base-uncased", "scratch/tiny").replace("[1, 2]", "[1]")
    run = run.replace("train=df", "train=df, max_steps=2")
    assert run.count("max_steps") == 1 and "bert_base_en_uncased" in fit
    frame = "import pandas, tfbert\ndf = pandas.DataFrame({'text': texts, 'label': labels})\n"
    output_of(rows + frame + run, directory=tmp_path)
    fit = fit.replace("bert_base_en_uncased", "./runs/df")
    assert "Epoch 3/3" in output_of(rows + imports + fit, directory=tmp_path)


@pytest.mark.slow
def test_the_page_on_fit_runs(tmp_path):
    """With a model, a loss and data in the place of its reader's."""
    block, compared = blocks_of("docs/fit.md")
    own = """
build_classifier = lambda: keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(2)])
my_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train_ds = val_ds = tf.data.Dataset.from_tensor_slices((tf.random.normal([24, 3]), [0, 1] * 12)).batch(8)
strategy ="""
    script = block.replace("strategy =", own.strip(), 1).replace("[...]", "[]") + compared
    assert "Epoch 3/3" in output_of(script, directory=tmp_path)


@pytest.mark.slow
def test_the_page_on_python_runs(tmp_path):
    """As one script, but for the number of updates, and with a model that needs no download."""
    write_data(tmp_path)
    script = "\n".join(blocks_of("docs/python.md")).replace("bert-base-uncased", "scratch/tiny")
    script = script.replace("num_train_epochs=2", "max_steps=6")
    script = re.sub(r"(learning_rate=rate|max_seq_length=64),", r"\1, max_steps=2,", script)
    assert script.count("max_steps") == 3
    shown = output_of(script, directory=tmp_path)
    assert "Did you mean num_train_epochs?" in shown and "5e-05 0." in shown
    assert {path.name for path in (tmp_path / "runs").iterdir()} >= {"mine", "other-seed", "rate-3e-05", "bert"}


def write_data(directory):
    subprocess.run([sys.executable, ROOT / "examples" / "make_data.py", "data"], cwd=directory, check=True)


def in_shell(command, directory):
    """Runs a command as a page has it, but with this Python and from another directory."""
    command = re.sub(r"\bpython (run_\w+\.py)", lambda found: f"{sys.executable} {ROOT / found[1]}", command)
    done = subprocess.run(command, shell=True, cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stderr[-3000:]}"
