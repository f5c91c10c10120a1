"""Makes the wanted shards: by processes of this machine, or by an Apache Beam pipeline on Flink, Spark or Dataflow.

Both call `build_shard` for each shard, so the bytes are the same. All workers of a pipeline must see the corpus and the
directory of records under the same paths.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfbert.corpus.shards import Job, build_shard
from tfbert.corpus.worker_pool import done_by_processes
from tfbert.errors import EXPECTED, RunError, UsageError, first_line
from tfbert.output.progress import PassProgress

_OURS = re.compile(r"\b(UsageError|RunError): (.+?)(?= \[while running |\\n|$)", re.MULTILINE)


def make_shards(job: Job, shards: Sequence[int], num_processes: int) -> None:
    """Makes shards by processes of this machine; by this one alone if there is one.

    Args:
        job: How they are made.
        shards: Their numbers.
        num_processes: The number of processes.

    Raises:
        UsageError: as `build_shard` does, perhaps after other shards have been made.
        RunError: if something cannot be written, or a process ends early.
    """
    sizes = {shard: job.shares[shard].size for shard in shards}
    largest_first = sorted(shards, key=lambda shard: -sizes[shard])
    with PassProgress("making records", sum(sizes.values())) as progress:
        for entry in done_by_processes(build_shard, job, largest_first, num_processes):
            progress.advance(sizes[entry["shard"]], entry["sentences"])


def make_shards_with_beam(job: Job, shards: Sequence[int], beam_args: Sequence[str]) -> None:
    """Makes shards by a pipeline.

    Args:
        job: How they are made.
        shards: Their numbers.
        beam_args: Options of the pipeline, as on Beam's command lines.

    Raises:
        UsageError: if Beam is not installed, and as `build_shard` does, perhaps after other shards have been made.
        RunError: for a pipeline that failed.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise UsageError(
            "engine=beam needs Apache Beam. Received: a Python without it. Run in the clone: pip install -e '.[beam]'."
        ) from None
    pipeline = beam.Pipeline(options=PipelineOptions(list(beam_args)))
    _ = (
        pipeline
        | "Shards" >> beam.Create(list(shards))
        | "Spread" >> beam.Reshuffle()
        | "Records" >> beam.Map(_build, job)
    )
    try:
        pipeline.run().wait_until_finish()
    except EXPECTED:
        raise
    except Exception as error:  # Its class depends on the runner; our own error is somewhere in its text.
        if ours := _OURS.search(str(error)):
            raise {"UsageError": UsageError, "RunError": RunError}[ours[1]](ours[2]) from error
        raise RunError(f"The Beam pipeline failed: {first_line(error)}") from error


def _build(shard: int, job: Job) -> int:
    return build_shard(job, shard)["records"]
