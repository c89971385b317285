"""What the config form shows: the fields of the contract's catalogue with what was typed, as a tree for templates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from console.web.config_fields import CHILDREN, ON, SETTINGS, below, is_switched, rows_of
from serving_node.contract.fields import Choice, FieldSpec, Group, Kind, Shape

# Groups of fields of which only one may be set: what they decide, and what counts when none is.
_ALTERNATIVES = {
    "scheduling_choice": (gettext_noop("Scheduling"), gettext_noop("One request at a time")),
    "strategy_choice": (gettext_noop("Strategy"), gettext_noop("Direct, as usual")),
    "policy_choice": (gettext_noop("Which"), gettext_noop("The newest one")),
    "input_data_type": (gettext_noop("Values"), gettext_noop("Not chosen")),
    "state_data": (gettext_noop("Values"), gettext_noop("Not chosen")),
    "metric_options": (gettext_noop("Kind"), gettext_noop("Not chosen")),
}
# Seldom needed: folded away.
_RARE = re.compile(
    r".*(\.format|_shape_tensor|_non_linear_format_io|\.secondary_devices|\.profile|\.model_namespace|state\[\]\.use_.*)"
    r"|settings\.flotilla\.padding.*"
    r"|(name|platform|runtime|cc_model_filenames|metric_tags|model_operations|model_repository_agents)"
)
_FOLDED = {Group.MODEL, Group.WARM_UP, Group.ADVANCED}
# What the key of a map says.
_KEYS = {
    "dynamic_batching.priority_queue_policy": gettext_noop("Priority level"),
    "ensemble_scheduling.step[].input_map": gettext_noop("Input of the model"),
    "ensemble_scheduling.step[].output_map": gettext_noop("Output of the model"),
    "model_warmup[].inputs": gettext_noop("Input"),
    "cc_model_filenames": gettext_noop("Compute capability"),
}
# What a new row begins with.
_FIRST = {"ensemble_scheduling.step[].model_version": "-1"}
_GROUPS = {"batch_input": Group.TENSORS, "batch_output": Group.TENSORS}
_SETTINGS_GROUP = gettext_noop("Beyond Triton")
_GROUP_HELP = {
    Group.TENSORS: gettext_noop("What is left out comes from the model's file."),
    Group.INSTANCES: gettext_noop(
        "Each instance runs one batch at a time. More of them use more cores or GPU memory. Without a group there is"
        " one automatic instance."
    ),
}
_TITLE_PARTS = 3


@dataclass(slots=True)
class Node:
    """One element of the form. ``kind`` names its template: text, lines, choice, switch, section, toggle,
    alternatives, option, rows or row.
    """

    kind: str
    name: str
    label: str
    help: str = ""
    value: str = ""
    placeholder: str = ""
    is_on: bool = False
    is_number: bool = False
    choices: tuple[Choice, ...] = ()
    errors: list[str] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    template: Node | None = None
    index: str = ""

    @property
    def id(self) -> str:
        """Its id in the page."""
        return id_of(self.name)

    @property
    def error_id(self) -> str:
        """The id of what shows the errors of an option."""
        return id_of(self.index)

    @property
    def is_input(self) -> bool:
        """Whether an option is a single input, which shows its errors itself."""
        return len(self.children) == 1 and self.children[0].name == self.index

    @property
    def inputs(self) -> list[Node]:
        """Children that are a single input, side by side."""
        return [child for child in self.children if child.kind in {"text", "lines", "choice"}]

    @property
    def others(self) -> list[Node]:
        """Children below those."""
        return [child for child in self.children if child.kind not in {"text", "lines", "choice", "rare"}]

    @property
    def rare(self) -> Node | None:
        """The folded children."""
        return next((child for child in self.children if child.kind == "rare"), None)

    @property
    def shown(self) -> str:
        """Its value as people read it."""
        return next((choice.label for choice in self.choices if choice.value == self.value), self.value)

    @property
    def is_wrong(self) -> bool:
        """Whether it, or something in it, has an error."""
        return bool(self.errors) or any(child.is_wrong for child in self.children)

    @property
    def is_filled(self) -> bool:
        """Whether something in it was typed."""
        return bool(self.value) or self.is_on or any(child.is_filled for child in self.children)


def id_of(name: str) -> str:
    """Return the id in the page of the element with a name."""
    return "f-" + re.sub(r"[^A-Za-z0-9_]+", "-", name)


@dataclass(slots=True)
class FieldGroup:
    """A fieldset of the form."""

    label: str
    help: str
    is_open: bool
    section: Node


def form_groups(flat: Mapping[str, str], problems: Mapping[str, list[str]]) -> list[FieldGroup]:
    """Return the form for what was typed, with the sentences at their fields."""
    builder = _Builder(flat, problems)
    by_group: dict[str, list[tuple[FieldSpec, ...]]] = {}
    for specs in _slots(""):
        by_group.setdefault(_group_of(specs[0]), []).append(specs)
    groups = []
    for name in [*(group.value for group in Group), _SETTINGS_GROUP]:
        if name not in by_group:
            continue
        children = builder.children(by_group[name], "", 0)
        if name == _SETTINGS_GROUP:
            children = children[0].children
        section = Node("section", "", "", children=children)
        is_open = name not in _FOLDED or section.is_wrong or (name == Group.WARM_UP and section.is_filled)
        text = _GROUP_HELP.get(Group(name)) if name in set(Group) else None
        groups.append(FieldGroup(_(name), _(text) if text else "", is_open, section))
    return groups


def _group_of(spec: FieldSpec) -> str:
    return _SETTINGS_GROUP if spec.path == SETTINGS else str(_GROUPS.get(spec.path, spec.group))


def _slots(start: str) -> Iterator[tuple[FieldSpec, ...]]:
    """Yield the fields at one place, those that exclude each other together where the first of them is."""
    specs = CHILDREN.get(start, [])
    seen = set()
    for spec in specs:
        if not spec.alternatives:
            yield (spec,)
        elif spec.alternatives not in seen:
            seen.add(spec.alternatives)
            yield tuple(other for other in specs if other.alternatives == spec.alternatives)


class _Builder:
    def __init__(self, flat: Mapping[str, str], problems: Mapping[str, list[str]]) -> None:
        self._flat = flat
        self._problems = problems
        self._rows = rows_of(flat)

    def children(self, slots: list[tuple[FieldSpec, ...]], prefix: str, depth: int) -> list[Node]:
        """Return the nodes of these fields; the seldom needed ones are folded into the last."""
        shown: list[Node] = []
        folded: list[Node] = []
        for specs in slots:
            node = self._alternatives(specs, prefix, depth) if specs[0].alternatives else None
            node = node or self._node(specs[0], prefix + specs[0].name, depth)
            (folded if _RARE.fullmatch(specs[0].path) else shown).append(node)
        if folded:
            is_used = any(name.startswith(tuple(node.name for node in folded)) for name in self._flat)
            shown.append(Node("rare", prefix, _("Seldom needed"), is_on=is_used, children=folded))
        return shown

    def _below(self, spec: FieldSpec, name: str, depth: int) -> list[Node]:
        return self.children(list(_slots(below(spec))), f"{name}.", depth)

    def _alternatives(self, specs: tuple[FieldSpec, ...], prefix: str, depth: int) -> Node:
        group = specs[0].alternatives
        label, none = _ALTERNATIVES[group]
        name = f"{prefix}#{group}"
        chosen = self._flat.get(name, "")
        options = [Node("option", name, _(none), is_on=not chosen)]
        for spec in specs:
            node = Node("option", name, _said(spec.label), _said(spec.help), spec.name, is_on=chosen == spec.name)
            here = f"{prefix}{spec.name}"
            if spec.kind is Kind.SECTION:
                node.children = self._below(spec, here, depth)
            elif spec.kind is not Kind.SWITCH:
                node.children = [self._node(spec, here, depth)]
            node.index = here
            node.errors = [] if node.is_input else self._problems.get(here, [])
            options.append(node)
        return Node("alternatives", name, _(label), children=options, errors=self._problems.get(name, []))

    def _node(self, spec: FieldSpec, name: str, depth: int) -> Node:
        node = Node("section", name, _said(spec.label), help_of(spec), errors=self._problems.get(name, []))
        if spec.shape is Shape.MAP or (spec.kind is Kind.SECTION and spec.shape is Shape.LIST):
            node.kind = "rows"
            node.children = [self._row(spec, name, str(row), depth) for row in self._rows.get(name, ())]
            node.template = _Builder({}, {})._row(spec, name, f"__n{depth}__", depth)
        elif spec.kind is Kind.SECTION:
            node.kind = "toggle" if is_switched(spec) else "section"
            node.is_on = self._flat.get(name) == ON
            node.children = self._below(spec, name, depth)
        elif spec.kind is Kind.SWITCH and spec.shape is Shape.SINGLE:
            node.kind = "switch"
            node.is_on = self._flat.get(name) == ON
        else:
            self._fill(node, spec)
        return node

    def _fill(self, node: Node, spec: FieldSpec) -> None:
        node.value = self._flat.get(node.name, _FIRST.get(spec.path, "") if "__n" in node.name else "")
        if spec.kind is Kind.CHOICE:
            node.kind = "choice"
            node.choices = tuple(Choice(choice.value, _said(choice.label)) for choice in spec.choices)
            node.value = node.value or str(spec.default)
        elif spec.kind is Kind.TEXT and spec.shape is Shape.LIST:
            node.kind = "lines"
        else:
            node.kind = "text"
            node.is_number = spec.kind in {Kind.INTEGER, Kind.NUMBER}
            node.placeholder = "" if spec.default is None else str(spec.default)

    def _row(self, spec: FieldSpec, name: str, index: str, depth: int) -> Node:
        here = f"{name}{{{index}}}" if spec.shape is Shape.MAP else f"{name}[{index}]"
        row = Node("row", here, "", value=ON, index=index, errors=self._problems.get(here, []))
        if spec.shape is Shape.MAP:
            label = _KEYS.get(
                spec.path, gettext_noop("Input") if spec.path.startswith(SETTINGS) else gettext_noop("Key")
            )
            key = Node("text", f"{here}#key", _(label), is_number=spec.key_kind is Kind.INTEGER)
            row.children.append(key)
            if spec.kind is not Kind.SECTION:
                row.children.append(Node("text", f"{here}#value", _("Value")))
            for node in row.children:
                node.value, node.errors = self._flat.get(node.name, ""), self._problems.get(node.name, [])
        if spec.kind is Kind.SECTION:
            row.children += self._below(spec, here, depth + 1)
        texts = [child.shown for child in row.inputs if self._flat.get(child.name)]
        row.label = " · ".join(texts[:_TITLE_PARTS])[:80]
        return row


def _said(text: str) -> str:
    """Return a text of the contract's catalogue in the reader's language; the catalogue marks it."""
    return _(text)


def help_of(spec: FieldSpec) -> str:
    """Return a field's sentence with how it is typed."""
    parts = [_said(spec.help)] if spec.help else []
    if spec.unit == "microseconds":
        parts.append(_("In microseconds: 1000 are 1 ms."))
    elif spec.unit:
        parts.append(_("In %(unit)s.") % {"unit": spec.unit})
    elif spec.kind is Kind.INTEGER and spec.shape is Shape.SINGLE and spec.minimum is not None and spec.minimum >= -1:
        parts.append(_("At least %(minimum)d.") % {"minimum": spec.minimum})
    if spec.shape is Shape.LIST and spec.kind is Kind.TEXT:
        parts.append(_("One in each line."))
    elif spec.shape is Shape.LIST and spec.kind is not Kind.SECTION:
        parts.append(_("Separated by commas."))
    return " ".join(parts)


def every_name(groups: list[FieldGroup]) -> set[str]:
    """Return the names of all elements at which an error can be shown."""
    names: set[str] = set()

    def visit(node: Node) -> None:
        names.add(node.index if node.kind == "option" and node.index else node.name)
        for child in node.children:
            visit(child)

    for group in groups:
        visit(group.section)
    return names
