// Passkeys: asks the browser for a credential and posts it with the form around the button.
// data-passkey="create" and "get" take their options from the page, "sign-in" asks the server for them first.
const toBytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
const toText = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

function decoded({ publicKey }) {
  const withId = (one) => ({ ...one, id: toBytes(one.id) });
  const options = { ...publicKey, challenge: toBytes(publicKey.challenge) };
  if (publicKey.user) options.user = withId(publicKey.user);
  for (const name of ["allowCredentials", "excludeCredentials"]) {
    if (publicKey[name]) options[name] = publicKey[name].map(withId);
  }
  return options;
}

function encoded(credential) {
  const response = {};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
    if (credential.response[name]) response[name] = toText(credential.response[name]);
  }
  if (credential.response.getTransports) response.transports = credential.response.getTransports();
  return {
    id: credential.id,
    rawId: toText(credential.rawId),
    type: credential.type,
    authenticatorAttachment: credential.authenticatorAttachment ?? null,
    response,
    clientExtensionResults: credential.getClientExtensionResults(),
  };
}

async function optionsFor(kind, form) {
  if (kind !== "sign-in") return JSON.parse(document.getElementById("passkey-options").textContent);
  const answer = await fetch(form.action, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new TypeError(`status ${answer.status}`);
  return answer.json();
}

async function credentialFor(kind, form) {
  const data = await optionsFor(kind, form);
  if (kind !== "create") return navigator.credentials.get({ publicKey: decoded(data.request_options) });
  const publicKey = decoded(data.creation_options);
  const alone = form.elements.passwordless?.checked ?? false;
  publicKey.authenticatorSelection = {
    ...publicKey.authenticatorSelection,
    residentKey: alone ? "required" : "discouraged",
    requireResidentKey: alone,
    ...(alone ? { userVerification: "required" } : {}),
  };
  return navigator.credentials.create({ publicKey });
}

function fail(form, reason) {
  const box = form.querySelector("#passkey-error");
  const sentence = box.querySelector("p");
  sentence.textContent = sentence.dataset[reason];
  box.hidden = false;
}

async function use(button) {
  const form = button.closest("form");
  form.querySelector("#passkey-error").hidden = true;
  if (!window.PublicKeyCredential) return fail(form, "unsupported");
  button.disabled = true;
  try {
    const credential = await credentialFor(button.dataset.passkey, form);
    form.elements.credential.value = JSON.stringify(encoded(credential));
    form.submit();
  } catch (error) {
    fail(form, error instanceof TypeError ? "offline" : "cancelled");
  } finally {
    button.disabled = false;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-passkey]");
  if (button) use(button);
});
