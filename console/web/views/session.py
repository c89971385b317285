"""One's own password."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from console.identity.session_rules import session_moved
from console.web.forms.session import PasswordForm
from console.web.page import actor_of, add_errors, page, render_page, user_of
from registry.errors import RegistryError
from registry.services import accounts


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
@page
def password(request: HttpRequest) -> HttpResponse:
    """Change one's own password; other sessions of the account end."""
    form = PasswordForm(user_of(request), request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            accounts.user_set_password(
                user=user_of(request), password=form.cleaned_data["new_password1"], actor=actor_of(request)
            )
        except RegistryError as error:
            add_errors(form, error)
        else:
            user_of(request).refresh_from_db()
            update_session_auth_hash(request, user_of(request))
            session_moved(request)
            messages.success(request, _("The password is changed."))
            return redirect("web:password")
    status = 422 if form.is_bound else 200
    return render_page(
        request, "web/settings/password.html", {"form": form, "section": "security"}, current="settings", status=status
    )
