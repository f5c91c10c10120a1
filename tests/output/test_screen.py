"""What a call from Python shows, and what it leaves of the user's own logging."""

import io
import logging
import sys
import types

import pytest

from tfbert.devices import process
from tfbert.devices.runtime import tell
from tfbert.output.logs import bar, shown

log = logging.getLogger("tfbert")


def state():
    loggers = [log, logging.root, *map(logging.getLogger, ("tensorflow", "transformers"))]
    return [(one.level, one.propagate, list(one.handlers), list(one.filters)) for one in loggers]


@pytest.fixture
def set_up(monkeypatch):
    """Handlers of the user's own, on the logger that they are for; all is undone."""
    for logger, level in ((log, logging.NOTSET), (logging.root, logging.WARNING)):
        monkeypatch.setattr(logger, "handlers", [])
        monkeypatch.setattr(logger, "level", level)

    def add(handler, logger=logging.root, level=None, text="MINE %(message)s"):
        handler.setFormatter(logging.Formatter(text))
        logger.addHandler(handler)
        if level is not None:
            logger.setLevel(level)
        log.manager._clear_cache()
        return handler

    log.manager._clear_cache()
    yield add
    log.manager._clear_cache()


def say():
    log.debug("a detail")
    log.info("--max_steps=%d", 3)
    tell(["plain", "warning: 8 of 60"])


SHOWN = "--max_steps=3\nplain\nwarning: 8 of 60\n"
LEVELS = {logging.WARNING: "warning: 8 of 60\n", logging.INFO: SHOWN, logging.ERROR: ""}


def shows(capsys, **options):
    before = state()
    with shown(**options):
        say()
    assert state() == before
    found = capsys.readouterr()
    assert not found.out
    return found.err


def test_it_speaks_of_arguments(set_up, capsys, as_python):
    assert shows(capsys).startswith("max_steps=3\n")


def test_quiet_shows_nothing(set_up, capsys):
    set_up(logging.StreamHandler(sys.stderr))
    set_up(logging.StreamHandler(sys.stdout), log, logging.INFO)
    before = state()
    with shown(quiet=True):
        say()
        logging.getLogger("tensorflow").warning("retracing")
        bar(total=3, disable=not process.is_watched()).update(3)
    assert state() == before and capsys.readouterr() == ("", "")


def test_it_shows_information_and_warnings_as_the_command_and_nothing_twice(set_up, capsys):
    """In Colab the root logger has a handler and the level WARNING."""
    assert shows(capsys) == SHOWN
    set_up(logging.StreamHandler(sys.stderr))
    assert shows(capsys) == SHOWN


@pytest.mark.parametrize("options", [{"level": logging.INFO}, {"logger": log}])
def test_a_screen_that_shows_information_or_is_on_this_logger_is_the_users(set_up, capsys, options):
    set_up(logging.StreamHandler(sys.stderr), **options)
    assert shows(capsys) == "".join(f"MINE {line}\n" for line in SHOWN.splitlines())


def test_a_level_on_this_logger_is_kept(set_up, capsys):
    log.setLevel(logging.WARNING)
    assert shows(capsys) == "warning: 8 of 60\n"
    log.setLevel(logging.ERROR)
    assert shows(capsys) == ""


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("level, expected", LEVELS.items())
def test_files_get_what_they_would_get_anyway(set_up, capsys, quiet, level, expected):
    file = set_up(logging.StreamHandler(io.StringIO()), level=level, text="%(message)s")
    assert shows(capsys, quiet=quiet) == ("" if quiet else SHOWN)
    assert file.stream.getvalue() == expected


def test_all_is_undone_where_a_run_fails(set_up):
    before = state()
    with pytest.raises(KeyError), shown(quiet=True):
        raise KeyError
    assert state() == before and not process.is_unwatched()


@pytest.fixture
def notebook(monkeypatch):
    """All that each output of a cell showed, the last what it shows now, by IPython's display."""
    outputs = []

    def display(data, raw, display_id):
        texts = [data["text/plain"]]
        outputs.append(texts)
        return types.SimpleNamespace(update=lambda data, raw: texts.append(data["text/plain"]))

    shell = types.SimpleNamespace(kernel=object())
    module = types.SimpleNamespace(get_ipython=lambda: shell, display=types.SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", module)
    return outputs


def test_in_a_notebook_only_warnings_are_on_stderr(set_up, capsys, notebook):
    with shown():
        say()
    assert capsys.readouterr() == ("--max_steps=3\nplain\n", "warning: 8 of 60\n")


def test_in_a_notebook_a_bar_is_one_output_that_changes(notebook, capsys):
    first = bar(total=4, desc="steps", bar_format="{desc} {n}", mininterval=0)
    with bar(total=2, desc="evaluating", bar_format="{desc} {n}", mininterval=0, leave=False) as second:
        second.update(1)
    first.update(4)
    first.close()
    assert [texts[-1] for texts in notebook] == ["steps 4", ""]
    assert not [text for texts in notebook for text in texts if set("\r\n\x1b") & set(text)]
    assert capsys.readouterr() == ("", "")
