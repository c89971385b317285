"""Addresses of the console."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from console.api import probes

urlpatterns: list[URLPattern | URLResolver] = [
    path("livez", probes.live),
    path("readyz", probes.ready),
    path("metrics", probes.metrics),
    path("api/v1/", include("console.api.v1.urls")),
    path("admin/", admin.site.urls),
    path("", include("console.web.urls")),
]
