"""Whether an answer is what a config promises. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.utils.translation import gettext as _

from serving_node.contract.datatypes import wire_name
from serving_node.contract.model_config import ModelConfig
from workers.scratch import Answer, Difference, OutputFacts

_LONGEST_SHAPE = 32


def answer_problems(config: ModelConfig, answer: Answer, rows: int | None) -> list[str]:
    """Return what contradicts the config: an error, outputs that are missing, other types, other shapes.

    ``rows`` is the batch that was sent; None when that is not known, and for models that do not batch.
    """
    if answer.error:
        return [_("The model refused a request: %(error)s") % {"error": answer.error}]
    if answer.stream is None:
        return list(_problems(config, answer.outputs, rows))
    if not answer.stream.answers:
        return [] if answer.stream.is_final else [_("No answer came, and the request was not ended either.")]
    kinds = (answer.outputs, *answer.stream.other_outputs)
    return [problem for outputs in kinds for problem in _problems(config, outputs, rows)]


def answer_warnings(answer: Answer) -> list[str]:
    """Return what is suspicious in an answer that fits."""
    warnings = []
    if answer.stream is not None and not answer.stream.answers:
        warnings.append(_("It ended a request without an answer."))
    if answer.stream is not None and not answer.stream.is_final:
        text = _("After %(count)d answers a request was not ended: no final response came in time.")
        warnings.append(text % {"count": answer.stream.answers})
    for output in answer.outputs:
        if output.nan or output.inf:
            text = _("Output “%(name)s” has %(nan)d values that are no number and %(inf)d that are infinite.")
            warnings.append(text % {"name": output.name, "nan": output.nan, "inf": output.inf})
    return warnings


def _problems(config: ModelConfig, outputs: Iterable[OutputFacts], rows: int | None) -> Iterator[str]:
    got = {output.name: output for output in outputs}
    for promised in config.output:
        output = got.get(promised.name)
        if output is None:
            yield _("The answer has no output “%(name)s”.") % {"name": promised.name}
            continue
        wanted = wire_name(promised.data_type)
        if output.datatype != wanted:
            text = _("Output “%(name)s” has the type %(got)s, the config says %(wanted)s.")
            yield text % {"name": promised.name, "got": output.datatype, "wanted": wanted}
        batch = ((rows if rows is not None else -1),) if config.max_batch_size > 0 else ()
        shape = (*batch, *promised.dims)
        if not _fits(output, shape):
            text = _("Output “%(name)s” has the shape %(got)s, the config says %(wanted)s.")
            yield text % {"name": promised.name, "got": _text(output.shape), "wanted": _text(shape)}
    for output in got.values():
        if output.difference is not None and output.difference.wrong:
            yield _apart(output.name, output.difference)


def _apart(name: str, apart: Difference) -> str:
    words = {"name": name, "got": apart.got, "wanted": apart.wanted, "index": apart.index}
    if apart.index is None:
        return _("Output “%(name)s” is %(got)s, the sample expects %(wanted)s.") % words
    words |= {"wrong": apart.wrong, "elements": apart.elements}
    text = _(
        "Output “%(name)s” differs from the sample in %(wrong)d of %(elements)d elements: element %(index)d is %(got)s,"
        " expected %(wanted)s."
    )
    return text % words


def _fits(output: OutputFacts, shape: tuple[int, ...]) -> bool:
    return len(output.shape) == len(shape) and all(
        wanted in (-1, size) for wanted, size in zip(shape, output.shape, strict=True)
    )


def _text(shape: tuple[int, ...]) -> str:
    sizes = ", ".join(map(str, shape[:_LONGEST_SHAPE]))
    return f"[{sizes}]"
