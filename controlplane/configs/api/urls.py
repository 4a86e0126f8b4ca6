"""The addresses of a configuration's life."""

from __future__ import annotations

from typing import Final

from django.urls import URLPattern, path

from controlplane.configs.api import views

_ONE: Final = "endpointpickerconfigs/<str:name>"

urlpatterns: list[URLPattern] = [
    path(f"{_ONE}/validate", views.ValidateView.as_view(), name="configs-validate"),
    path(f"{_ONE}/plan", views.PlanView.as_view(), name="configs-plan"),
    path(f"{_ONE}/revisions", views.RevisionsView.as_view(), name="configs-revisions"),
    path(f"{_ONE}/revisions/<int:number>", views.RevisionView.as_view(), name="configs-revision"),
    path(f"{_ONE}/diff", views.DiffView.as_view(), name="configs-diff"),
    path(f"{_ONE}/rollouts", views.RolloutsView.as_view(), name="configs-rollouts"),
    path(f"{_ONE}/rollout", views.RolloutView.as_view(), name="configs-rollout"),
    path(f"{_ONE}/publish", views.PublishView.as_view(), name="configs-publish"),
    path(f"{_ONE}/promote", views.PromoteView.as_view(), name="configs-promote"),
    path(f"{_ONE}/halt", views.HaltView.as_view(), name="configs-halt"),
    path(f"{_ONE}/rollback", views.RollBackView.as_view(), name="configs-rollback"),
]
