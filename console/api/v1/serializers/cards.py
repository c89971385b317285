"""Model cards as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.v1.serializers.deployments import VersionReference
from console.templatetags.markdown import render_markdown
from registry.models import ModelCard


class CardRevisionSerializer(serializers.ModelSerializer[ModelCard]):
    """One revision without its text. ``version`` is the one whose README it was."""

    version = serializers.IntegerField(source="version.number", read_only=True, allow_null=True, default=None)
    author = serializers.CharField(source="author.username", read_only=True)

    class Meta:
        model = ModelCard
        fields = ["number", "sha256", "comment", "version", "author", "created_at"]


class CardSerializer(CardRevisionSerializer):
    """One revision: ``text`` is Markdown, ``html`` is what the console shows, safe to put into a page."""

    html = serializers.SerializerMethodField()

    class Meta(CardRevisionSerializer.Meta):
        fields = [*CardRevisionSerializer.Meta.fields, "text", "html"]

    def get_html(self, card: ModelCard) -> str:
        """Return the text as safe HTML."""
        return render_markdown(card.text)


class CardWrite(serializers.Serializer[Any]):
    """A card in Markdown; ``version`` is the one whose README it is."""

    text = serializers.CharField(trim_whitespace=False)
    comment = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)
    version = VersionReference(required=False, allow_null=True, default=None)


class DiffLineSerializer(serializers.Serializer[Any]):
    """One line: ``kind`` is same, added, removed, or gap for lines left out."""

    kind = serializers.ChoiceField(choices=["same", "added", "removed", "gap"])
    text = serializers.CharField(allow_blank=True)


class CardDiffSerializer(serializers.Serializer[Any]):
    """What differs from revision ``before`` to ``after``; no lines: nothing."""

    before = serializers.IntegerField()
    after = serializers.IntegerField()
    lines = DiffLineSerializer(many=True)
