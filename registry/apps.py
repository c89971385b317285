"""Django app of the domain."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RegistryConfig(AppConfig):
    """Registers the domain's models under the label ``registry``."""

    name = "registry"
    verbose_name = _("Registry")
    default_auto_field = "django.db.models.BigAutoField"
