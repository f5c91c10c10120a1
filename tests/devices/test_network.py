"""Workers on hosts of their own, whose network fails: the benchmarks' hosts, and what ends on them."""

import os
import sys

import network_failures
import network_hosts
import network_page
import pytest


@pytest.fixture
def allowed():
    try:
        network_hosts.check_allowed()
    except network_hosts.NotAllowed as reason:
        pytest.skip(str(reason))


@pytest.mark.slow
@pytest.mark.multi_worker
@pytest.mark.parametrize("side", ["command", "keras3"])
def test_a_cut_link_ends_both_workers_in_one_line(allowed, tmp_path, side):
    with network_hosts.Hosts(2) as hosts:
        trial = network_failures.Trial(hosts, side, tmp_path, 10_000)
        trial.start_all()
        trial.wait_for_step(3)
        hosts.cut(1)
        ends = trial.wait_for_ends(120)
    assert [one["status"] for one in ends] == [1, 1], ends
    for one, lost in zip(ends, ("worker 1", "the first worker"), strict=True):
        assert f"lost contact with {lost}" in one["line"], one


def test_without_root_it_says_so_and_does_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(network_hosts.shutil, "which", lambda name: name)
    monkeypatch.setattr(sys, "argv", ["network_failures.py", f"--work_dir={tmp_path / 'runs'}"])
    assert network_failures.main() == 0
    assert capsys.readouterr().out == "skipped: only root makes network namespaces. Received: user 1000.\n"
    assert not (tmp_path / "runs").exists()


def test_a_last_line_is_what_was_received():
    line = (
        "run_finetune.py: error: All workers must stay up. Received: UnavailableError, lost worker 13. See its output."
    )
    assert network_page.shortened(line) == "Received: UnavailableError, lost worker N"
    assert network_page.shortened("a" * 200) == "a" * 110 + "..."
