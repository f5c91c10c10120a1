"""The function that `model.fit` runs, with its input pipeline, for benchmarks that measure updates in turns."""

import pathlib
import time


def own_step(config):
    """Sets up a run as the command does; TensorFlow is imported here, after the allocator is set.

    Args:
        config: The run's configuration, resolved.

    Returns:
        A function that makes a number of updates and returns their seconds (wall, user, kernel); and the `Run`.
    """
    from tfbert.batches.pipeline import distribute_batches
    from tfbert.devices import runtime
    from tfbert.devices.preemption import Consensus
    from tfbert.devices.strategy import build_strategy
    from tfbert.measure.cpu_time import CpuTime
    from tfbert.measure.data_clock import DataClock
    from tfbert.train.build import build_run
    from tfbert.train.resume import look

    runtime.set_up(config.runtime)
    strategy = build_strategy(config.runtime)
    run = build_run(look(pathlib.Path(config.output.output_dir), config), strategy, Consensus(strategy))
    with run.strategy.scope():
        clock = DataClock()
    clock.attach(run.model)
    batches = iter(distribute_batches(run.strategy, run.train, run.batches.plans))

    def make_updates(count):
        start, cpu = time.perf_counter(), CpuTime.now()
        for _ in range(count):
            run.model.train_function(batches)
        run.model.counters.finite_steps.numpy()
        seconds, cpu = time.perf_counter() - start, CpuTime.since(cpu)
        return seconds, cpu.user, cpu.kernel

    return make_updates, run
