"""``demo_accounts``: the two people of the demo, with fresh tokens, as JSON."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from registry.domain.actors import Actor
from registry.models import Project, Role, User
from registry.services.accounts import membership_set, user_create
from registry.services.tokens import token_create

_PEOPLE = {"author": ("demo-author", Role.OPERATOR), "approver": ("demo-approver", Role.APPROVER)}
_TOKEN_DAYS = 1


class Command(BaseCommand):
    """Makes an author and an approver in project ``default``; the password is told when they are made, never again."""

    help = "Make the demo's two people and print their tokens as JSON."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print ``{author: {username, password, token}, approver: {...}}``."""
        actor = Actor.system("demo")
        project = Project.objects.get(slug="default")
        answer = {}
        for part, (username, role) in _PEOPLE.items():
            user = User.objects.filter(username=username).first()
            password = None
            if user is None:
                password = secrets.token_urlsafe(12)
                user = user_create(username=username, password=password, actor=actor)
                membership_set(project=project, user=user, role=role, actor=actor)
            _row, token = token_create(
                owner=user,
                name="flotilla demo",
                scopes=["read", "write"],
                project=project,
                expires_at=timezone.now() + timedelta(days=_TOKEN_DAYS),
                actor=actor,
            )
            answer[part] = {"username": username, "password": password, "token": token}
        self.stdout.write(json.dumps(answer))
