"""As much of Apache Beam as our pipeline needs, in this process: stage by stage, in another order."""

import types


class Step:
    def __init__(self, function):
        self.function = function

    def __rrshift__(self, label):
        return self


class Pipeline:
    def __init__(self, options):
        self._steps = []

    def __or__(self, step):
        self._steps.append(step)
        return self

    def run(self):
        values = None
        for step in self._steps:
            values = step.function(values)
        return self

    def wait_until_finish(self):
        pass


def stand_in():
    """The modules by their names, as in `sys.modules`."""
    beam = types.ModuleType("apache_beam")
    beam.Pipeline = Pipeline
    beam.Create = lambda values: Step(lambda _: list(values))
    beam.Reshuffle = lambda: Step(lambda values: values[::-1])
    beam.Map = lambda call, *args: Step(lambda values: [call(value, *args) for value in values])
    options, pipeline_options = types.ModuleType("options"), types.ModuleType("pipeline_options")
    pipeline_options.PipelineOptions = list
    return {
        "apache_beam": beam,
        "apache_beam.options": options,
        "apache_beam.options.pipeline_options": pipeline_options,
    }
