"""Stand-ins for the model, the log and the clock beside which a run's callbacks work."""

import math
import types

import keras
import tensorflow as tf

from tfbert.batches.schedule import Schedule
from tfbert.config.run import Config
from tfbert.measure import StepClock, Work
from tfbert.step.core import StepCounters
from tfbert.step.keras3.fused import WarmupSchedule
from tfbert.train.fit import Progress


class Log:
    """Keeps what a RunLog is told."""

    def __init__(self):
        self.records, self.said = [], []

    def record(self, step, kind, numbers):
        self.records.append((step, kind, numbers))
        return 0.0

    def advance(self, step, text):
        self.said.append(text)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def schedule(total=12, first=0, **options):
    defaults = {"steps_per_epoch": 6, "warmup_steps": 2, "eval_steps": 4, "logging_steps": 2}
    return Schedule(**defaults | options, total_steps=total, first_step=first)


def a_model():
    rate = WarmupSchedule(peak=1.0, schedule="linear", warmup_steps=2, total_steps=12)
    model = types.SimpleNamespace(counters=StepCounters(), optimizer=keras.optimizers.Adam(rate), model=None)
    model.stop_training, model.check_same_start = False, lambda: None
    return model


def update(model, loss, norm=1.0, finite=True):
    model.counters.update(tf.constant(loss), tf.constant(norm), tf.constant(finite))


def progress_over(log, clock, model, **run):
    """A Progress over updates of 8 examples and 40 tokens, and a function that makes one: of so many seconds, some of
    which it waited for data, and with an evaluation after it that takes others."""
    data = types.SimpleNamespace(seconds=0.0)
    planned = iter([(Work(examples=8, tokens=40, squared_tokens=200), 5)] * 12)
    run = types.SimpleNamespace(**{"model": model, "schedule": schedule(), "resumed": None, "config": Config()} | run)
    steps = StepClock(planned, warm_up=2)
    steps._clock = clock
    progress = Progress(run, log, steps, data)
    progress.steps.start()

    def make_update(step, seconds, loss=1.0, waited=0.0, evaluated=0.0):
        update(model, loss, norm=loss, finite=math.isfinite(loss))
        clock.now += seconds + evaluated
        data.seconds += waited
        progress.steps.paused += evaluated
        progress.on_step(step)

    return progress, make_update
