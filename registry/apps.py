"""Django app of the domain."""

from django.apps import AppConfig
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from registry.domain import texts


class RegistryConfig(AppConfig):
    """Registers the domain's models under the label ``registry`` and gives the domain its translations."""

    name = "registry"
    verbose_name = _("Registry")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        texts.install(gettext)
