"""Addresses below /scim/v2/."""

from __future__ import annotations

from django.urls import URLPattern, path, re_path

from console.api.scim import groups, views

urlpatterns: list[URLPattern] = [
    path("Users", views.Users.as_view()),
    path("Users/<uuid:user>", views.OneUser.as_view()),
    path("Groups", groups.Groups.as_view()),
    path("Groups/<uuid:group>", groups.OneGroup.as_view()),
    path("ServiceProviderConfig", views.ServiceConfig.as_view()),
    path("ResourceTypes", views.ResourceTypes.as_view()),
    path("ResourceTypes/<str:name>", views.ResourceTypes.as_view()),
    path("Schemas", views.Schemas.as_view()),
    path("Schemas/<str:name>", views.Schemas.as_view()),
    re_path(r"(?P<rest>[\s\S]+)", views.Unknown.as_view()),
]
