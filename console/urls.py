"""Addresses of the console."""

from __future__ import annotations

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from console.api import probes

# One way in: the emergency admin has no sign-in of its own that would know nothing of second factors.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]

handler400 = "console.api.exceptions.bad_request"

urlpatterns: list[URLPattern | URLResolver] = [
    path("livez", probes.live),
    path("readyz", probes.ready),
    path("metrics", probes.metrics),
    path("api/v1/", include("console.api.v1.urls")),
    path("scim/v2/", include("console.api.scim.urls")),
    path("admin/", admin.site.urls),
    path("", include("console.web.sign_in_urls")),
    path("", include("console.web.urls")),
]
