"""What a project asks of its versions, as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.domain.licences import Treatment
from registry.domain.sizes import MAX_THRESHOLD
from registry.models import CodeFormats, SigningPolicy

_TREATMENTS = [one.value for one in Treatment]


class LimitSerializer(serializers.Serializer[Any]):
    """A version above ``warn`` gets a warning, one above ``fail`` is refused; null: no such threshold."""

    warn = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=MAX_THRESHOLD)
    fail = serializers.IntegerField(  # type: ignore[assignment]
        required=False, allow_null=True, min_value=1, max_value=MAX_THRESHOLD
    )


class SizeLimitsSerializer(serializers.Serializer[Any]):
    """All files together, the largest one, and how many there are."""

    total_bytes = LimitSerializer(required=False)
    file_bytes = LimitSerializer(required=False)
    files = LimitSerializer(required=False)


class LicencePolicySerializer(serializers.Serializer[Any]):
    """Licences by their SPDX names or beginnings (``GPL-*``); forbidden goes before allowed.

    ``unlisted``: what follows for a licence on neither list; ``missing``: where a version states none.
    """

    allowed = serializers.ListField(child=serializers.CharField(), required=False)
    forbidden = serializers.ListField(child=serializers.CharField(), required=False)
    unlisted = serializers.ChoiceField(choices=_TREATMENTS, required=False)
    missing = serializers.ChoiceField(choices=_TREATMENTS, required=False)


class PoliciesSerializer(serializers.Serializer[Any]):
    """The policies in force, with what is usual filled in. ``own_size_limits``: what the project itself has set."""

    code_formats = serializers.ChoiceField(choices=CodeFormats.choices)
    pickles_known_only = serializers.BooleanField()
    signing_policy = serializers.ChoiceField(choices=SigningPolicy.choices)
    size_limits = SizeLimitsSerializer()
    own_size_limits = SizeLimitsSerializer()
    licence_policy = LicencePolicySerializer()


class PoliciesChange(serializers.Serializer[Any]):
    """Other policies; those left out stay. ``code_formats``: may versions bring code that nodes run?

    ``pickles_known_only``: may their pickles import nothing but what is known to be harmless? ``signing_policy``: must
    new versions be signed by a key that the project trusts? ``size_limits`` and ``licence_policy`` are replaced as a
    whole; what is left out of them is as usual.
    """

    code_formats = serializers.ChoiceField(choices=CodeFormats.choices, required=False)
    pickles_known_only = serializers.BooleanField(required=False)
    signing_policy = serializers.ChoiceField(choices=SigningPolicy.choices, required=False)
    size_limits = SizeLimitsSerializer(required=False)
    licence_policy = LicencePolicySerializer(required=False)
