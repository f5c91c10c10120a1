"""Makes the shards with an Apache Beam pipeline: on its local runner, or on Flink, Spark or Dataflow for large corpora.

    parts -> documents by shard -> GroupByKey -> build_shard

`build_shard` is the function that the processes of one machine call too, so the bytes are the same. All workers must
see the corpus and the directory of records under the same paths.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

from tfbert.corpus.buckets import stored
from tfbert.corpus.documents import Source
from tfbert.corpus.manifest import read_entry
from tfbert.corpus.recipe import Recipe
from tfbert.corpus.shards import Job, StoredDocument, build_shard
from tfbert.errors import EXPECTED, RunError, UsageError, first_line

_OURS = re.compile(r"\b(UsageError|RunError): (.+?)(?= \[while running |\\n|$)", re.MULTILINE)


def make_shards_with_beam(source: Source, job: Job, shards: Sequence[int], beam_args: Sequence[str]) -> None:
    """Makes shards. Errors of `build_shard` come from a worker, perhaps after other shards have been made.

    Args:
        source: The corpus.
        job: How they are made.
        shards: Their numbers.
        beam_args: Options of the pipeline, as on Beam's command lines.

    Raises:
        UsageError: if Beam is not installed, what `build_shard` raises, and for a shard that was not made.
        RunError: for a pipeline that failed.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise UsageError(
            "engine=beam needs Apache Beam. Received: a Python without it. Run in the clone: pip install -e '.[beam]'."
        ) from None
    parts = list(enumerate(source.parts()))
    pipeline = beam.Pipeline(options=PipelineOptions(list(beam_args)))
    _ = (
        pipeline
        | "Parts" >> beam.Create(parts)
        | "Spread" >> beam.Reshuffle()
        | "Documents" >> beam.FlatMap(_documents, source, job.recipe, frozenset(shards))
        | "Shards" >> beam.GroupByKey()
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
    for shard in shards:  # GroupByKey knows nothing of a shard without documents.
        if read_entry(pathlib.Path(job.directory), job.digest, shard, content=False) is None:
            raise UsageError(
                "Every shard needs documents, and a directory that all workers of the pipeline see. "
                f"Received: nothing for shard {shard} of {job.recipe.num_shards} in {job.directory}. "
                "Pass a lower --num_shards, or another --output_dir."
            )


def _documents(
    part: tuple[int, str], source: Source, recipe: Recipe, wanted: frozenset[int]
) -> Iterator[tuple[int, StoredDocument]]:
    for shard, _, document in stored(source, *part, recipe):
        if shard in wanted:
            yield shard, document


def _build(group: tuple[int, Iterable[StoredDocument]], job: Job) -> int:
    shard, documents = group
    pathlib.Path(job.work).mkdir(parents=True, exist_ok=True)
    return build_shard(job, shard, documents)["records"]
