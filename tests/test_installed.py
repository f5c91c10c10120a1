"""What a wheel brings, and the command `tfbert`: its words, its presets, and what it calls itself."""

import ast
import configparser
import importlib
import pathlib
import re
import shutil
import subprocess
import sys
import types
import zipfile

import pytest

import tfbert
from tests.support.processes import ROOT, output_of
from tests.support.refusals import refused
from tfbert import Config, UsageError, __version__
from tfbert import __main__ as words
from tfbert.commandline import Reader, find_flagfile, verb_of
from tfbert.config.run import FINETUNE, PRETRAIN
from tfbert.report.pages import command_line

PRESETS = ROOT / "flags" / "presets"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The files that a wheel is made of, built from a copy, and the directory of its metadata."""
    source, out = copied(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("built")
    set_up(source, "egg_info", f"--egg-base={out}", "build_py", f"--build-lib={out / 'lib'}")
    return out / "lib", out / "tfbert_trainer.egg-info"


def set_up(source, *words):
    command = [sys.executable, "setup.py", "-q", *words]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)


def copied(directory):
    """What setup.py needs, in a directory."""
    for name in ("tfbert", "flags"):
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, directory)
    return directory


def names_in(directory, pattern="*"):
    return {path.relative_to(directory).as_posix() for path in directory.rglob(pattern) if path.is_file()}


def test_a_wheel_has_the_package_its_templates_and_the_presets(built):
    library, _ = built
    assert [path.name for path in library.iterdir()] == ["tfbert"], "nothing else goes into site-packages"
    assert names_in(library / "tfbert", "*.py") == names_in(ROOT / "tfbert", "*.py")
    templates = names_in(ROOT / "tfbert", "*.html")
    others = ("py.typed", "config/elsewhere.toml", "report/templates/model_card.md")
    assert all((library / "tfbert" / name).is_file() for name in others)
    assert len(templates) >= 8 and names_in(library / "tfbert", "*.html") == templates
    demos = names_in(ROOT / "tfbert", "*.jsonl.gz")
    assert len(demos) == 12 and names_in(library / "tfbert", "*.jsonl.gz") == demos
    assert names_in(library / "tfbert" / "presets") == names_in(PRESETS, "*.flags")


def test_an_editable_install_is_a_plain_path(tmp_path):
    """Type checkers follow a path outside the clone; setuptools' import hook they do not."""
    pytest.importorskip("wheel")  # Its own command for it; pip brings it.
    source = copied(tmp_path / "source")
    set_up(source, "editable_wheel", f"--dist-dir={tmp_path}")
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        code = {name: files.read(name).decode().strip() for name in files.namelist() if "dist-info" not in name}
    assert list(code.values()) == [str(source)]


THEIRS, OURS = ("0.2.4", "Author: deepdialog"), ("1.0.0", "Author: The tfbert maintainers")
WORD = "import sys; from tfbert.devices.process import run_program; from tfbert import __main__ as words\n"
WORD += "sys.exit(run_program('tfbert', lambda: words.main(['tfbert', {!r}])))"


@pytest.mark.parametrize(
    "installed, package, body, status, lines",
    [
        (THEIRS, "'Not ours.'", WORD.format("--version"), 1, r"tfbert: error: The distr.* clone\.\n$"),
        (OURS, None, WORD.format("train"), 1, r"tfbert: error: The packages .*'absl' in .* clone\.\n$"),
        (OURS, None, f"import sys; sys.modules['tfbert.config.run'] = None; {WORD.format('train')}", 1, r"Traceback"),
    ],
)
def test_another_project_of_this_name_is_told_of(installed, package, body, status, lines, built, tmp_path):
    """On the package index `tfbert` is not ours. Nor are the packages there that ours needs, in most of these cases."""
    shutil.copytree(built[0], tmp_path, dirs_exist_ok=True)
    version, author = installed
    metadata = tmp_path / f"tfbert-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Name: tfbert\nVersion: {version}\n{author}\n")
    if package:  # Theirs was put over ours.
        (tmp_path / "tfbert" / "__init__.py").write_text(package)
    command = [sys.executable, "-S", "-c", body]
    done = subprocess.run(command, cwd="/", env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == status and re.match(lines, done.stderr), done.stderr


def test_the_distribution_has_a_name_of_its_own(built):
    said = (built[1] / "PKG-INFO").read_text()
    assert "\nName: tfbert-trainer\n" in said
    (python,) = re.findall(r"\nRequires-Python: (.*)\n", said)
    assert {*python.split(",")} == {">=3.11", "<3.14"}, "pip on 3.14 then says so"


def test_editors_and_type_checkers_see_the_public_names():
    public = {*tfbert.__all__, "load", "finetune", "FineTuner"}
    assert public <= {*dir(tfbert)}
    tree = ast.parse((ROOT / "tfbert" / "__init__.py").read_text(encoding="utf-8"))
    (for_types,) = (
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = [node for node in for_types.body if isinstance(node, ast.ImportFrom)]
    seen = {(alias.name, node.module) for node in imports for alias in node.names}
    assert seen == {*tfbert._LAZY.items(), ("callbacks", "tfbert")}


def test_a_wheel_has_the_command(built):
    entries = configparser.ConfigParser()
    entries.read(built[1] / "entry_points.txt")
    module, _, function = entries["console_scripts"]["tfbert"].partition(":")
    assert getattr(importlib.import_module(module), function) is words.main


def test_presets_are_found_in_what_a_wheel_brings(built, tmp_path):
    code = "from tfbert.commandline import find_flagfile; print(find_flagfile('glue-sst2'))"
    shown = output_of(code, directory=tmp_path, PYTHONPATH=str(built[0]))
    assert shown.strip() == str(built[0] / "tfbert/presets/glue-sst2.flags")


@pytest.mark.parametrize(
    "name", ["glue-sst2", "glue-sst2.flags", "flags/presets/glue-sst2.flags", "./flags/presets/glue-sst2"]
)
def test_a_preset_is_found_from_any_directory(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_flagfile(name) == PRESETS / "glue-sst2.flags"
    assert find_flagfile("pretraining/bert-base-phase1") == PRESETS / "pretraining" / "bert-base-phase1.flags"


def read(*arguments):
    """The values that flags have."""
    reader = Reader(FINETUNE)
    reader.read_line(arguments)
    assert not reader.problems
    return reader.values


def test_a_file_that_is_there_comes_before_a_preset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("glue-sst2").write_text("--seed=7\n")
    assert read("--flagfile=glue-sst2") == {"seed": 7}
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read("--flagfile", "~/glue-sst2", "--xla") == {"seed": 7, "xla": True}


@pytest.mark.parametrize(
    "name, advice", [("bert-base-phase1", "pretraining/bert-base-phase1"), ("squad", "squad1-bert")]
)
def test_an_unknown_name_gets_the_nearest_presets(name, advice, tmp_path, monkeypatch):
    """And all where none is near: tests/commandline/refusals.txt."""
    monkeypatch.chdir(tmp_path)
    with refused(rf"^flagfile must be .* Received: flagfile='{name}'\. .*{advice}"):
        find_flagfile(name)


def test_flag_files_are_expanded_in_their_places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("mine").write_text("# Ours.\n\n--xla\n--flagfile=glue-sst2\n // not\n--seed=7")
    preset = read("--flagfile=glue-sst2")
    assert preset["metric_for_best_model"] == "accuracy"
    found = read("--seed=6", "--output_dir", "x", "-flagfile=mine", "--flagfile=", "--noxla", "--")
    assert found == preset | {"output_dir": "x", "seed": 7, "xla": False}


@pytest.mark.parametrize(
    "text, message", [(b"--flagfile=mine", "must not include itself"), (b"\xff\xfe", "file of text.*not UTF-8")]
)
def test_a_flag_file_that_cannot_be_used_is_refused(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("mine").write_bytes(text)
    with pytest.raises(UsageError, match=message):
        read("--flagfile=mine")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_command_alone_says_what_there_is(arguments, capsys):
    assert words.main(["/somewhere/bin/tfbert", *arguments]) == 0
    shown = capsys.readouterr().out
    begun = set(re.findall(r"^  tfbert (\w+)", shown, re.MULTILINE))
    assert begun == {"finetune", "pretrain", "train", "prepare", "launch", "report"}
    assert all(mode in shown for mode in (*FINETUNE.modes, *PRETRAIN.modes))
    assert len(shown.splitlines()) < 18


def test_an_unknown_word_is_one_line(capsys):
    assert words.main(["tfbert", "finetun", "--xla"]) == 2
    assert capsys.readouterr().err == (
        "tfbert: error: The first argument must be one of finetune, pretrain, train, evaluate, predict, export, "
        "prepare, launch, report. Received: 'finetun'. Did you mean finetune?\n"
    )
    answers = {"eval": "evaluate.", "serve": "export, which writes", "trian": "Did you mean train?"}
    for word, answer in {**answers, "benchmark": "python benchmarks/devices.py, in a clone"}.items():
        assert words.main(["tfbert", word]) == 2
        assert answer in capsys.readouterr().err
    assert words.main(["tfbert", "--version"]) == 0
    assert capsys.readouterr().out == f"tfbert {__version__}\n"


@pytest.fixture
def kept_argv(monkeypatch):
    monkeypatch.setattr(sys, "argv", sys.argv)
    return monkeypatch


@pytest.mark.parametrize(
    "program, typed", [("/venv/bin/tfbert", "tfbert"), ("/lib/tfbert/__main__.py", "python -m tfbert")]
)
def test_messages_name_the_command_as_it_was_typed(program, typed, kept_argv, capsys):
    for arguments, start in (
        (["report", "nowhere"], f"{typed} report: error: A finished run is a directory"),
        (["launch"], f"A command must follow --. Received: none. Usage: {typed} launch --num_workers=N"),
        (["finetune", "--max_steps=-1"], f"{typed} finetune: error: max_steps must be"),
        (["pretrain", "--nonsense"], f"{typed} pretrain: error: Unknown command line flag 'nonsense'"),
        (["predict", "--max_steps=1"], f"{typed} predict: error: max_steps has no effect with mode=predict"),
        (["train", "--mode=export"], f"{typed} train: error: {typed} train says the mode itself. Received: mode='ex"),
    ):
        assert words.main([program, *arguments]) == 2
        assert f"\n{start}" in f"\n{capsys.readouterr().err}"


def test_the_launcher_starts_the_installed_command_wherever_it_is(tmp_path):
    command = [sys.executable, "-m", "tfbert", "launch", "--num_workers=1", "--", "tfbert", "finetune", "--nonsense"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("[worker 0] tfbert finetune: error: Unknown command line flag 'nonsense'")


def test_a_command_is_named_for_what_started_it(kept_argv):
    assert FINETUNE.typed == "run_finetune.py" and PRETRAIN.typed == "run_pretraining.py"
    assert command_line(Config()).split()[:2] == ["python", "run_finetune.py"]
    kept_argv.setattr(sys, "argv", ["tfbert finetune", "--xla"])
    assert (FINETUNE.typed, PRETRAIN.typed) == ("tfbert finetune", "tfbert pretrain")
    assert command_line(Config()).startswith("tfbert finetune")
    kept_argv.setattr(sys, "argv", ["tfbert train", "--xla"])
    assert (FINETUNE.typed, PRETRAIN.typed) == ("tfbert train", "tfbert pretrain")
    kept_argv.setattr(sys, "argv", ["python -m tfbert pretrain"])
    assert FINETUNE.typed == "python -m tfbert finetune"


@pytest.mark.parametrize("command", [FINETUNE, PRETRAIN], ids=lambda command: command.word)
def test_every_mode_is_a_word_and_has_a_verb(command, kept_argv):
    seen = []
    kept_argv.setattr("tfbert.commandline.run_command", lambda *given: seen.append(given) or 0)
    for word in (*command.modes, command.word):
        assert words.main(["tfbert", word]) == 0
    for mode, (ran, _, said) in zip(command.modes, seen, strict=False):
        assert said == mode and ran is (FINETUNE if mode in FINETUNE.modes else PRETRAIN)
        config = types.SimpleNamespace(mode=mode, data=types.SimpleNamespace(task=command.task))
        assert callable(verb_of(config))
    assert (seen[-1][0], seen[-1][2]) == (command, "")


def test_the_version_is_said_alike():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    said = dict(re.findall(r"^([a-z-]+): (\S+)$", citation, re.MULTILINE))
    assert said["version"] == __version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = [heading for heading in re.findall(r"^## (.*)", changes, re.MULTILINE) if heading != "Unreleased"]
    assert released[0] == f"{__version__} ({said['date-released']})"
