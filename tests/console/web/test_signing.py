"""The page about signatures over versions."""

from __future__ import annotations

from registry.models import Check, Project, SigningIdentity, SigningKey
from tests.console.conftest import Cast, public_key
from tests.console.web.conftest import Browse
from tests.signatures.authorities import ISSUER, WORKFLOW, Authority, pem


def test_the_page_sets_the_policy_trusts_a_key_and_shows_what_removing_it_means(cast: Cast, browse: Browse) -> None:
    client, page = browse("alice"), "/settings/projects/wren/signing/"
    form = client.get(page).context["policy_form"]
    given = {"form": "policy", "seen": form["seen"].value(), "signing_policy": "required"}
    assert client.post(page, given).status_code == 302
    late = client.post(page, {**given, "signing_policy": "optional"})
    assert late.status_code == 422 and "Somebody changed it" in late.text
    assert Project.objects.get(slug="wren").signing_policy == "required"
    wrong = client.post(page, {"form": "key", "name": "release", "public_key": "rubbish"})
    assert wrong.status_code == 422 and "no public key in PEM" in wrong.text and "rubbish" in wrong.text
    assert client.post(page, {"form": "key", "name": "release", "public_key": public_key()}).status_code == 302
    key = SigningKey.objects.get()
    version = cast.ready_version()
    signer = {"name": key.name, "fingerprint": key.fingerprint}
    Check.objects.create(version=version, kind="signature_verification", verdict="pass", evidence={"signer": signer})
    assert "1 version was verified with it" in client.get(page).text
    shown = client.get("/p/wren/models/finch/versions/1/").text
    assert 'data-testid="version-signer"' in shown and key.fingerprint[:16] in shown
    assert "Trust a key" not in browse("vera").get(page).text
    assert browse("vera").post(f"{page}{key.pk}/remove/").status_code == 403
    assert browse("charlie").get(page).status_code == 404
    assert client.post(f"{page}{key.pk}/remove/").status_code == 302
    assert not SigningKey.objects.exists()


def test_the_page_trusts_identities(cast: Cast, browse: Browse) -> None:
    client, page = browse("alice"), "/settings/projects/wren/signing/"
    keyless = {"form": "keyless", "keyless-name": "ci", "keyless-identity": "*", "keyless-issuer": ISSUER}
    wide = client.post(page, keyless)
    assert wide.status_code == 422 and "only stand at the end of its branch" in wide.text and ISSUER in wide.text
    assert client.post(page, {**keyless, "keyless-identity": WORKFLOW}).status_code == 302
    given = {"certificate-name": "corp", "certificate-identity": "CN=release"}
    given["certificate-certificates"] = pem(Authority().certificate)
    assert client.post(page, {"form": "certificate", **given}).status_code == 302
    shown = client.get(page).text
    assert WORKFLOW in shown and "CN=release" in shown and "Trust an identity" not in browse("vera").get(page).text
    row = SigningIdentity.objects.get(name="ci")
    version = cast.ready_version()
    signer = {"kind": "keyless", "name": "ci", "fingerprint": "0" * 64, "identity": WORKFLOW, "issuer": ISSUER}
    signer["identity_id"] = str(row.pk)
    Check.objects.create(version=version, kind="signature_verification", verdict="pass", evidence={"signer": signer})
    assert "1 version was verified with it" in client.get(page).text
    assert WORKFLOW in client.get("/p/wren/models/finch/versions/1/").text
    assert browse("vera").post(f"{page}identities/{row.pk}/remove/").status_code == 403
    assert client.post(f"{page}identities/{row.pk}/remove/").status_code == 302
    assert not SigningIdentity.objects.filter(name="ci").exists()
