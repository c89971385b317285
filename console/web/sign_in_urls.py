"""Addresses of signing in, by the names that django-allauth asks for. What is not here is not reachable."""

from __future__ import annotations

from django.urls import URLPattern, path, re_path

from console.web.views import entrance, security, sso

urlpatterns: list[URLPattern] = [
    path("login/", entrance.SignIn.as_view(), name="account_login"),
    path("logout/", entrance.SignOut.as_view(), name="account_logout"),
    path("login/factor/", entrance.SecondFactor.as_view(), name="mfa_authenticate"),
    path("login/passkey/", entrance.PasskeySignIn.as_view(), name="mfa_login_webauthn"),
    path("login/confirm/", entrance.Confirm.as_view(), name="account_reauthenticate"),
    path("login/confirm/code/", entrance.ConfirmByCode.as_view(), name="mfa_reauthenticate"),
    path("login/confirm/passkey/", entrance.ConfirmByPasskey.as_view(), name="mfa_reauthenticate_webauthn"),
    path("login/forgot/", entrance.Forgot.as_view(), name="account_reset_password"),
    path("login/forgot/sent/", entrance.ForgotSent.as_view(), name="account_reset_password_done"),
    path("login/new-password/done/", entrance.NewPasswordDone.as_view(), name="account_reset_password_from_key_done"),
    re_path(
        r"^login/new-password/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>[^/]+)/$",
        entrance.NewPassword.as_view(),
        name="account_reset_password_from_key",
    ),
    path("login/sso/<slug:provider_id>/", sso.sso_start, name="openid_connect_login"),
    path("login/sso/<slug:provider_id>/callback/", sso.sso_callback, name="openid_connect_callback"),
    path("login/sso/cancelled/back/", sso.sso_cancelled, name="socialaccount_login_cancelled"),
    path("settings/security/", security.security, name="mfa_index"),
    path("settings/security/app/", security.AppAdd.as_view(), name="mfa_activate_totp"),
    path("settings/security/app/remove/", security.AppRemove.as_view(), name="mfa_deactivate_totp"),
    path("settings/security/passkeys/add/", security.PasskeyAdd.as_view(), name="mfa_add_webauthn"),
    path("settings/security/passkeys/<int:pk>/remove/", security.PasskeyRemove.as_view(), name="mfa_remove_webauthn"),
    path("settings/security/codes/", security.Codes.as_view(), name="mfa_view_recovery_codes"),
    path("settings/security/codes/renew/", security.CodesRenew.as_view(), name="mfa_generate_recovery_codes"),
]
