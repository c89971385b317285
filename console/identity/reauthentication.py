"""Sensitive acts ask again who is there, unless somebody has just shown it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import get_authentication_records
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import urlencode

View = Callable[..., HttpResponse]


def is_recent(request: HttpRequest) -> bool:
    """Say whether the person proved who they are a short while ago.

    True as well for somebody who has nothing here to prove it with: single sign-on without passkey or app.
    """
    records = get_authentication_records(request, request.user)
    if records and time.time() - records[-1]["at"] < settings.ACCOUNT_REAUTHENTICATION_TIMEOUT:
        return True
    return not get_adapter(request).get_reauthentication_methods(request.user)


def sensitive(*forms: str, keeps_input: bool = True) -> Callable[[View], View]:
    """Ask again before a POST (of one of the named forms, when there are names), then go on with it.

    ``keeps_input`` False: what was typed holds a password and is not kept meanwhile; the form comes back empty.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            concerned = request.method == "POST" and (not forms or request.POST.get("form") in forms)
            if concerned and request.user.is_authenticated and not is_recent(request):
                if keeps_input:
                    raise ReauthenticationRequired
                method = get_adapter(request).get_reauthentication_methods(request.user)[0]
                return redirect(f"{method['url']}?{urlencode({'next': request.get_full_path()})}")
            return view(request, *args, **kwargs)

        return wrapped

    return decorate
