"""Stages of changes as JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from registry.domain.stages import StageState


class StageSerializer(serializers.Serializer[Any]):
    """One stage. ``gate``: what it waits for, or what ended it. At ``until`` the clock does what ``then`` says.

    ``percent`` of what it loads is there; ``seconds``: how long it took.
    """

    name = serializers.ChoiceField(choices=["approval", "start", "load", "verify", "back"])
    state = serializers.ChoiceField(choices=[one.value for one in StageState])
    gate = serializers.CharField()
    began_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)
    then = serializers.ChoiceField(choices=["", "starts", "expires", "gives_up"])
    percent = serializers.IntegerField(allow_null=True)
    seconds = serializers.FloatField(allow_null=True)


class MoveSerializer(serializers.Serializer[Any]):
    """One move of a state: from, to, why, who."""

    from_state = serializers.CharField()
    to_state = serializers.CharField()
    cause = serializers.CharField()
    actor_name = serializers.CharField()
    created_at = serializers.DateTimeField()


class StagesSerializer(serializers.Serializer[Any]):
    """Stages in their order, and the moves that led through them, oldest first."""

    stages = StageSerializer(many=True)
    moves = MoveSerializer(many=True)
