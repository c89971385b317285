"""Addresses below /scim/v2/."""

from __future__ import annotations

from django.urls import URLPattern, path

from console.api.scim import views

urlpatterns: list[URLPattern] = [
    path("Users", views.Users.as_view()),
    path("Users/<uuid:user>", views.OneUser.as_view()),
    path("ServiceProviderConfig", views.ServiceConfig.as_view()),
    path("ResourceTypes", views.ResourceTypes.as_view()),
    path("Schemas", views.Schemas.as_view()),
    path("<path:rest>", views.Unknown.as_view()),
]
