"""The house rules of the code: imports point down, nothing heavy at import, files stay short."""

import ast
import importlib
import pathlib
import pkgutil
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
MODULES = sorted(path.relative_to(ROOT) for top in ("tfbert", "flags") for path in (ROOT / top).rglob("*.py")) + [
    pathlib.Path("run_finetune.py")
]
STANDARD = sys.stdlib_module_names | {"__future__"}

# From the ground up: a room imports from its own floor and those below.
FLOORS = (
    "errors",
    "private",
    "measure",
    "config",
    "devices",
    "launch",
    "step",
    "output",
    "data",
    "tokens",
    "corpus",
    "batches",
    "model",
    "tasks",
    "report",
    "train",
    "modes",
)
DOORS = ("__init__", "classifier", "finetuner")  # Where user code comes in; above all floors.


def imports(path):
    """(module, names) of each import; those inside functions too, but not those for type checkers."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped |= set(ast.walk(node))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            yield node.module, tuple(alias.name for alias in node.names)


def own_imports(path):
    """The tfbert modules a module imports, as parts: `("data", "plan")`."""
    for module, names in imports(path):
        parts = tuple(module.split("."))
        if parts[0] == "tfbert" and (ROOT / pathlib.Path(*parts)).is_dir():  # A folder: its rooms, or names of its own.
            yield from ((*parts[1:], name) for name in names if not name.startswith("__"))
        elif parts[0] == "tfbert":
            yield parts[1:]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_no_file_is_longer_than_400_lines(path):
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] == "tfbert"], ids=str)
def test_the_library_never_imports_the_command(path):
    for module, _ in imports(path):
        assert module.split(".")[0] not in ("flags", "run_finetune"), module


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] == "tfbert"], ids=str)
def test_imports_point_down(path):
    own = path.with_suffix("").parts[1]
    if own in DOORS:
        return
    for other in own_imports(path):
        assert FLOORS.index(other[0]) <= FLOORS.index(own), f"{path} imports {'.'.join(other)}, which stands above it"


def test_the_architecture_page_names_every_room():
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    floors = dict(re.findall(r"^\| `tfbert/(\w+)(?:/|\.py)` \| (.+) \|$", page, re.M))
    assert list(floors) == list(reversed(FLOORS)), "from the top down"
    for path in MODULES:
        top, *rooms = path.with_suffix("").parts
        if top == "tfbert" and len(rooms) > 1 and not rooms[-1].startswith("__"):
            named = f"`{rooms[1]}/`" if len(rooms) > 2 else f"`{rooms[-1]}`"
            assert named in floors[rooms[0]], path
    assert len(page.splitlines()) <= 80, "one page"


def test_no_module_imports_itself_through_others():
    graph = {path.with_suffix("").parts[1:]: set(own_imports(path)) for path in MODULES if path.parts[0] == "tfbert"}
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


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[:2] == ("tfbert", "config")], ids=str)
def test_config_needs_the_standard_library_only(path):
    assert {module.split(".")[0] for module, _ in imports(path)} - STANDARD <= {"tfbert"}
    assert {other[0] for other in own_imports(path)} <= {"config", "errors"}


@pytest.mark.parametrize(
    "name, others",
    [("plan", {("errors",)}), ("packing", {("batches", "plan")}), ("pools", {("batches", "plan")})],
)
def test_plans_are_pure_numpy(name, others):
    used = {module.split(".")[0] for module, _ in imports(f"tfbert/batches/{name}.py")} - STANDARD
    assert used == {"numpy", "tfbert"}
    assert set(own_imports(f"tfbert/batches/{name}.py")) == others


def test_gradients_need_tensorflow_alone():
    assert {module.split(".")[0] for module, _ in imports("tfbert/step/gradients.py")} - STANDARD == {"tensorflow"}


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[:2] == ("tfbert", "step")], ids=str)
def test_the_step_needs_no_configuration(path):
    assert {other[0] for other in own_imports(path)} <= {"step", "measure", "private"}


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_flags_are_read_in_the_command_only(path):
    is_command = path.parts[0] in ("flags", "run_finetune.py")
    assert is_command or "FLAGS" not in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_keras_is_always_tf_keras(path):
    """`tf.keras` and `keras` are Keras 3 where TF_USE_LEGACY_KERAS is not set."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        is_tf_keras = isinstance(node, ast.Attribute) and node.attr == "keras" and ast.unparse(node.value) == "tf"
        assert not is_tf_keras, f"{path}:{node.lineno}"
    assert "keras" not in {module.split(".")[0] for module, _ in imports(path)}


@pytest.mark.parametrize("path", sorted(path.parent for path in MODULES if path.name == "__init__.py"), ids=str)
def test_no_public_name_is_that_of_a_module(path):
    """Importing a module sets its name in the package, and would put it in the place of the public thing."""
    package = importlib.import_module(".".join(path.parts))
    names = {*getattr(package, "__all__", ()), *getattr(package, "_LAZY", ())}
    assert not names & {module.name for module in pkgutil.iter_modules(package.__path__)}


@pytest.mark.parametrize("path", sorted((ROOT / "tests").glob("*.py")), ids=lambda path: path.stem)
def test_no_test_file_imports_another(path):
    """What several need is in rooms beside them; an import would load, and on a name's change break, the other."""
    for module, _ in imports(path):
        assert not module.startswith("tests.test_"), module


def test_the_command_is_short():
    assert len((ROOT / "run_finetune.py").read_text(encoding="utf-8").splitlines()) < 80


def test_every_module_and_every_public_thing_is_documented():
    undocumented = []
    for path in MODULES:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        if tree.body and not ast.get_docstring(tree):
            undocumented.append(str(path))
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                if not ast.get_docstring(node):
                    undocumented.append(f"{path}: {node.name}")
    assert not undocumented


def test_a_wrong_flag_need_not_wait_for_tensorflow():
    """Nothing that parses a command line may import TensorFlow or other heavy libraries."""
    code = (
        "import sys; import run_finetune, flags, tfbert, tfbert.config.run;"
        "heavy = {'tensorflow', 'tf_keras', 'keras', 'transformers', 'numpy', 'torch', 'keras_nlp'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
