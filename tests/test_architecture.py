"""The house rules of the code: imports point down, nothing heavy at import, no room grows unseen."""

import ast
import collections
import functools
import importlib
import importlib.util
import pathlib
import pkgutil
import re
import sys
import tomllib

import pytest

from tests.support.processes import ROOT, output_of

MODULES = sorted(path.relative_to(ROOT) for top in ("tfbert", "flags") for path in (ROOT / top).rglob("*.py"))
MODULES += map(pathlib.Path, ("run_finetune.py", "run_pretraining.py"))
STANDARD = sys.stdlib_module_names | {"__future__"}

# From the ground up: a room imports from its own floor and those below.
FLOORS = ["errors", "private", "measure", "config", "devices", "launch", "step", "output", "data", "tokens", "corpus"]
FLOORS += ["batches", "model", "bert", "tasks", "report", "train", "modes", "commandline", "python"]
DOORS = ("__init__", "__main__", "callbacks", "classifier", "finetuner")  # Where users come in; above all floors.


LIBRARY = [path for path in MODULES if path.parts[0] == "tfbert"]


@functools.cache
def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


@functools.cache
def tree_of(path):
    return ast.parse(text_of(path))


@functools.cache
def nodes_of(path):
    """From the outside in."""
    return [*ast.walk(tree_of(path))]


@functools.cache
def imports(path, for_types=False):
    """(module, names) of each import; those inside functions too, those for type checkers if asked for."""
    found, skipped = [], set()
    for node in nodes_of(path):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not for_types:
            skipped |= set(ast.walk(node))
        elif isinstance(node, ast.Import) and node not in skipped:
            found += [(alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node not in skipped:
            assert not node.level, f"{path}: relative import"
            found.append((node.module, tuple(alias.name for alias in node.names)))
    return found


def own_imports(path, for_types=False):
    """The tfbert modules a module imports, as parts: `("data", "plan")`."""
    for module, names in imports(path, for_types):
        parts = tuple(module.split("."))
        if parts[0] == "tfbert" and (ROOT / pathlib.Path(*parts)).is_dir():  # A folder: its rooms, or names of its own.
            yield from ((*parts[1:], name) for name in names if not name.startswith("__"))
        elif parts[0] == "tfbert":
            yield parts[1:]


# The most lines of code of each room, without docstrings, comments and blank lines. They may fall freely, and are
# raised by hand, in the commit that needs it, with the reason.
MOST_LINES = {
    "batches": 680,
    "bert": 939,
    "commandline": 391,
    "config": 1537,
    "corpus": 1797,
    "data": 1392,
    "devices": 906,
    "doors": 687,
    "launch": 299,
    "model": 1998,
    "modes": 936,
    "output": 634,
    "python": 274,
    "report": 896,
    "step": 2653,
    "tasks": 5296,
    "tokens": 1022,
    "train": 1396,
}


def code_lines(path):
    """The lines that hold code, which docstrings do not; a text of several lines does, whatever is in it."""
    lines = enumerate(text_of(path).splitlines(), start=1)
    held = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    skipped = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            held |= set(range(node.lineno, node.end_lineno + 1))
        elif isinstance(node, documented) and ast.get_docstring(node):
            skipped |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(held - skipped)


def test_no_room_has_more_lines_than_it_needs():
    found = collections.Counter()
    for path in LIBRARY:
        room = path.with_suffix("").parts[1]
        found[room if room in MOST_LINES else "doors"] += code_lines(path)
    grown = [f"{room}: {lines}" for room, lines in found.items() if lines > MOST_LINES.get(room, 0)]
    assert not grown, "make it shorter, or raise the number and say why"


GROUPS = {path.parts[2] for path in LIBRARY if path.parts[1] == "tasks" and len(path.parts) > 3}
"""The folders of tasks."""


def test_no_task_imports_another():
    """What tasks share stands beside their folders, and imports none of them but by the registry's names."""
    for path in [path for path in LIBRARY if path.parts[1] == "tasks"]:
        own = path.parts[2] if path.parts[2] in GROUPS else None
        others = {other[1] for other in own_imports(path) if other[0] == "tasks" and len(other) > 1}
        assert not (others & GROUPS) - {own}, path


def test_no_module_compares_a_task_by_name():
    """What differs between tasks is theirs, the registry's, or a row of the configuration's table."""
    from tfbert.config.tables import TASKS

    names = {*TASKS}
    for path in [path for path in LIBRARY if not (GROUPS | {"registry.py"}) & {*path.parts}]:
        for node in nodes_of(path):
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            values = [part for side in sides for part in ast.walk(side)]
            assert not {getattr(part, "value", None) for part in values if isinstance(part, ast.Constant)} & names, path
            assert not {part.id for part in values if isinstance(part, ast.Name)} & {"PRETRAINING"}, path
    for template in (ROOT / "tfbert" / "report" / "templates").iterdir():
        assert ".task" not in template.read_text(encoding="utf-8"), template


def test_the_registry_and_the_configuration_have_the_same_tasks():
    from tfbert.config.tables import TASKS, TaskName
    from tfbert.tasks.registry import ENTRIES

    assert {entry.name for entry in ENTRIES} == TASKS.keys() == {*TaskName.__args__} - {"auto"}


def test_the_registry_names_what_exists():
    from tfbert.tasks import registry

    for entry in registry.ENTRIES:
        references = [value for value in vars(entry).values() if isinstance(value, str) and ":" in value]
        assert len(references) >= 3
        for name in ("report.html", "usage.md"):
            assert (ROOT / "tfbert" / "tasks" / entry.folder / name).is_file(), entry.folder
        for reference in references:
            module, _, name = reference.partition(":")
            assert hasattr(importlib.import_module(f"tfbert.tasks.{module}"), name), reference


def test_the_library_never_imports_the_command():
    command = ("flags", "run_finetune", "run_pretraining")
    assert not [path for path in LIBRARY for module, _ in imports(path) if module.split(".")[0] in command]


def test_imports_point_down():
    upwards = [
        f"{path} imports {'.'.join(other)}, which stands above it"
        for path in LIBRARY
        if (own := path.with_suffix("").parts[1]) not in DOORS
        for other in own_imports(path)
        if FLOORS.index(other[0]) > FLOORS.index(own)
    ]
    assert not upwards


PAGE = ROOT / "docs" / "ARCHITECTURE.md"


def picture():
    """The rooms from the top down, each with the first sentence of what it says of itself."""
    lines = []
    for room in reversed(FLOORS):
        path = pathlib.Path("tfbert", room, "__init__.py")
        path = path if (ROOT / path).exists() else pathlib.Path("tfbert", f"{room}.py")
        about = ast.get_docstring(tree_of(path)).partition("\n\n")[0].replace("\n", " ")
        lines.append(f"{room:<12} {about}")
    return "\n".join(["```text", *lines, "```"])


def test_the_architecture_page_has_the_rooms_and_names_what_exists():
    page = PAGE.read_text(encoding="utf-8")
    assert picture() in page, "python -m tests.test_architecture writes it"
    named = re.findall(r"`(\w+(?:/\w+)+)/?`", page)
    assert len(named) > 20
    roots = [ROOT / top for top in ("tfbert", ".")]
    assert not [
        name for name in named if not any((root / name).is_dir() or (root / f"{name}.py").is_file() for root in roots)
    ]


def test_no_module_imports_itself_through_others():
    """Not even for type checkers."""
    graph = {path.with_suffix("").parts[1:]: set(own_imports(path, for_types=True)) for path in LIBRARY}
    graph = {name: {other for other in others if other in graph} for name, others in graph.items()}
    done = set()

    def visit(name, path):
        assert name not in path, " -> ".join(".".join(part) for part in (*path, name))
        if name not in done:
            for other in graph[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_config_needs_the_standard_library_only():
    for path in [path for path in LIBRARY if path.parts[1] == "config"]:
        assert {module.split(".")[0] for module, _ in imports(path)} - STANDARD <= {"tfbert"}, path
        assert {other[0] for other in own_imports(path)} <= {"config", "errors"}, path


def test_plans_are_pure_numpy():
    path = pathlib.Path("tfbert/batches/plan.py")
    assert {module.split(".")[0] for module, _ in imports(path)} - STANDARD == {"numpy", "tfbert"}
    assert set(own_imports(path)) == {("data", "permutation"), ("errors",)}


def test_gradients_need_tensorflow_alone():
    assert {module.split(".")[0] for module, _ in imports("tfbert/step/gradients.py")} - STANDARD == {"tensorflow"}


def test_the_step_needs_no_configuration():
    for path in [path for path in LIBRARY if path.parts[1] == "step"]:
        used = set(own_imports(path)) - {("devices", "workers"), ("devices", "process")}
        assert {other[0] for other in used} <= {"step", "errors", "measure", "private"}, path


def test_flags_are_read_in_the_command_only():
    users = {path.stem for path in LIBRARY if re.search(r"\bFLAGS\b", text_of(path))}
    assert users <= {"commandline", "__main__"}


TF_KERAS = ("tfbert", "step", "tf_keras")
"""The folder for models of tf_keras, an extra."""


def test_tf_keras_is_in_its_folder_alone():
    """`tf.keras` is tf_keras where TF_USE_LEGACY_KERAS is set."""
    for path in MODULES:
        for node in nodes_of(path):
            is_either = isinstance(node, ast.Attribute) and node.attr == "keras" and ast.unparse(node.value) == "tf"
            assert not is_either, f"{path}:{node.lineno}"
        used = {module.split(".")[0] for module, _ in imports(path)}
        if path.parts[:3] == TF_KERAS:
            assert "keras" not in used, path
        else:
            assert not used & {"tf_keras", "transformers"}, path
            assert not [other for other in own_imports(path) if other[:2] == TF_KERAS[1:]], path


@pytest.mark.parametrize(
    "start, other",
    [("step/keras3/finetuner", "transformers"), ("bert/models", "transformers"), ("step/tf_keras/finetuner", "keras")],
)
def test_who_uses_one_library_does_not_wait_for_another(start, other):
    """Followed from module to module; what stands in a function is imported when it is called."""
    found, left = set(), [pathlib.Path("tfbert", f"{start}.py")]
    while left:
        path = left.pop()
        found.add(path)
        top = tree_of(path).body
        names = [alias.name for node in top if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module for node in top if isinstance(node, ast.ImportFrom)]
        assert other not in {name.split(".")[0] for name in names}, path
        inner = [pathlib.Path("tfbert", *parts).with_suffix(".py") for parts in own_imports(path)]
        left += [each for each in inner if each in LIBRARY and each not in found]
    assert len(found) > 9


def test_no_public_name_is_that_of_a_module():
    """Importing a module sets its name in the package, and would put it in the place of the public thing."""
    for path in [path.parent for path in MODULES if path.name == "__init__.py"]:
        package = importlib.import_module(".".join(path.parts))
        names = {*getattr(package, "__all__", ()), *getattr(package, "_LAZY", ())}
        assert not names & {module.name for module in pkgutil.iter_modules(package.__path__)}, path


def test_no_test_file_imports_another():
    """What several need is in rooms beside them; an import would load, and on a name's change break, the other."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if ".test_" in text_of(path):  # Most need not be parsed.
            assert not [module for module, _ in imports(path) if re.search(r"^tests\b.*\.test_", module)], path


def test_the_scripts_are_short():
    for name in ("run_finetune.py", "run_pretraining.py", "flags/__init__.py"):
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) < 40


def test_every_module_and_every_public_thing_is_documented():
    undocumented = []
    for path in MODULES:
        tree = tree_of(path)
        if tree.body and not ast.get_docstring(tree):
            undocumented.append(str(path))
        things = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
        public = [node for node in things if not node.name.startswith("_")]
        undocumented += [f"{path}: {node.name}" for node in public if not ast.get_docstring(node)]
    assert not undocumented


@pytest.mark.parametrize(
    "modules, allowed",
    [
        ("run_finetune, flags, tfbert.__main__, tfbert.commandline, tfbert.launch", "[]"),
        ("tfbert.report.__main__", "['numpy']"),
    ],
)
def test_a_wrong_flag_need_not_wait_for_tensorflow(modules, allowed):
    """Nor do the launcher and the report, which need none."""
    heavy = "{'tensorflow', 'tf_keras', 'keras', 'transformers', 'numpy', 'torch', 'keras_nlp', 'sklearn'}"
    assert output_of(f"import sys, {modules}; print(sorted({heavy} & set(sys.modules) - set({allowed})))") == "[]\n"


def test_what_is_checked_is_there():
    """pyright passes over a path that is not there."""
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pyright"]["include"]
    assert not [path for path in checked if not (ROOT / path).exists()]


def test_benchmarks_and_examples_use_what_is_there():
    """They run with packages of their own, so that no other test imports them."""
    for path in sorted([*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("examples/**/*.py")]):
        for module, names in [each for each in imports(path) if each[0].split(".")[0] == "tfbert"]:
            for name in names:
                found = hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}")
                assert found, f"{path.relative_to(ROOT)}: {module} has no {name}"


if __name__ == "__main__":  # Writes the picture of the rooms into the page.
    text = PAGE.read_text(encoding="utf-8")
    place = r"(?<=first\nline of a module says what it does\.\n\n).*?(?=\n\nThis list)"
    PAGE.write_text(re.sub(place, lambda _: picture(), text, flags=re.S))
