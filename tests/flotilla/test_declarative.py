"""Documents are read strictly, written stably, and compared without asking anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flotilla.declarative.documents import Document, DocumentsRefused, read_documents, write_documents
from flotilla.declarative.kinds import KINDS, SHAPES, SITE
from flotilla.declarative.plan import compare, describe, follow_configs, to_prune


def read(tmp_path: Path, text: str, name: str = "a.yaml") -> list[Document]:
    (tmp_path / name).write_text(text)
    return read_documents(tmp_path, SHAPES, SITE, "wren")


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(DocumentsRefused) as refusal:
        read(tmp_path, text)
    return str(refusal.value).replace(f"{tmp_path}/", "")


MODEL = "kind: Model\nname: finch\nspec:\n  description: A bird\n"

WRONG = [
    ("kind: Model\nname: finch\n", "a.yaml:1: the document needs the field 'spec'."),
    ("kind: Bird\nname: finch\nspec: {}\n", "a.yaml:1: kind must be one of: 'Project'"),
    (MODEL + "  colour: red\n", "a.yaml:5: spec has no field 'colour'; there are: description, task"),
    (MODEL + "  description: again\n", "a.yaml:5: spec.description is there twice."),
    (MODEL + "  tags: {team: yes}\n", "a.yaml:5: spec.tags.team must be a text; quote it."),
    (MODEL + "  tags: [a]\n", "a.yaml:5: spec.tags must have fields."),
    (MODEL + "  links: [{label: x}]\n", "a.yaml:5: spec.links[0] needs the field 'url'."),
    (MODEL + "---\n" + MODEL, "a.yaml:6: Model wren/finch is there twice; first at a.yaml:1."),
    ("kind: Fleet\nname: x\nproject: wren\nspec: {environment: e}\n", "Fleet belongs to the site"),
    ("kind: Membership\nname: bob\nspec: {role: king}\n", "a.yaml:3: spec.role must be one of: 'viewer'"),
    ("kind: Environment\nname: e\nspec: {required_approvals: 0}\n", "must be a whole number from 1 to 100"),
    ("a: &x [1]\nb: *x\n", "a.yaml:1: anchors and aliases (&, *) are not read."),
    ("kind: [\n", "a.yaml:2: "),
    ("!!python/object:os.system {}\n", "the document needs the field"),
    ("1\n", "a.yaml:1: the document must have fields."),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    assert sentence in refused(tmp_path, text)


def test_every_problem_of_every_file_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.yml").write_text("kind: Model\n")
    said = refused(tmp_path, MODEL + "  x: 1\n  y: 2\n")
    assert len(said.splitlines()) == 4 and "deep/b.yml:1" in said


def test_a_folder_without_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentsRefused, match="holds no"):
        read_documents(tmp_path, SHAPES, SITE, "wren")


def test_what_is_left_out_of_a_route_is_what_it_means(tmp_path: Path) -> None:
    [document] = read(
        tmp_path, "---\n---\nkind: Deployment\nname: f@dev\nspec: {routes: [{version: 1, weight: 100}]}\n"
    )
    assert document.spec["routes"] == [
        {"config": "latest", "role": "live", "weight": 100, "sample_percent": 0.0, "version": 1}
    ]
    assert (document.project, document.place.rsplit(":", 1)[1]) == ("wren", "3")


words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20)


@given(
    st.dictionaries(words, words, max_size=5),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=60),
)
def test_what_is_written_reads_as_itself(tags: dict[str, str], text: str) -> None:
    documents = [Document("Model", "finch", "wren", {"description": text, "tags": tags})]
    written = write_documents(documents)
    [found] = list(yaml.safe_load_all(written))
    assert found["spec"] == {"description": text, "tags": tags}


def model(**spec: Any) -> Document:
    return Document("Model", "finch", "wren", spec, "a.yaml:1")


def test_fields_that_a_document_leaves_out_stay() -> None:
    now = {"description": "A bird", "tags": {"team": "x"}}
    assert compare(model(tags={"team": "x"}), now).action == "same"
    change = compare(model(tags={"team": "y", "new": "z"}), now)
    assert change.action == "update" and dict(change.fields) == {"tags": ({"team": "x"}, {"team": "y", "new": "z"})}
    assert describe(change) == ["~ Model wren/finch", "    tags.team: x -> y", "    tags.new: nothing -> z"]
    assert compare(model(), None).action == "create"


def test_secrets_are_not_compared() -> None:
    hook = Document("Webhook", "chat", "wren", {"url_env": "MINE", "events": ["*"]})
    assert compare(hook, {"url_env": "OTHER", "events": ["*"]}, KINDS["Webhook"].unseen).action == "same"


def test_a_new_config_moves_the_deployments_that_serve_the_latest() -> None:
    def deployment(name: str, config: str) -> Any:
        spec = {"routes": [{"version": 1, "config": config}]}
        return compare(Document("Deployment", name, "wren", spec), spec)

    config = compare(Document("ServingConfig", "finch", "wren", {"body": {"a": 1}}), {"body": {}})
    rows = follow_configs(
        [
            config,
            deployment("finch@dev", "latest"),
            deployment("finch@prod", "sha256:0"),
            deployment("owl@dev", "latest"),
        ]
    )
    assert [row.action for row in rows] == ["update", "update", "same", "same"]


def test_only_what_a_set_owned_and_may_go_is_pruned() -> None:
    owned = [("Webhook", "wren", "old"), ("Model", "wren", "owl"), ("Webhook", "wren", "chat")]
    documents = [Document("Webhook", "chat", "wren", {})]
    assert to_prune(owned, documents, {"Webhook"}) == [("Webhook", "wren", "old")]


def test_kinds_come_after_what_they_need() -> None:
    order = list(KINDS)
    spec = {"environment": "e", "service_account": "robot"}
    for kind in KINDS.values():
        document = Document(kind.name, "a@b", "" if kind.is_site else "wren", spec)
        for parent, _project, _name in kind.parents(document):
            assert order.index(parent) < order.index(kind.name)
