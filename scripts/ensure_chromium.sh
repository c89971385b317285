#!/usr/bin/env bash
# The browser tests drive Debian's Chromium: install it when we may, else say what to do.
set -euo pipefail
if [ "${FLOTILLA_NO_BROWSER:-0}" = 1 ] || command -v chromium >/dev/null 2>&1; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "Installing Chromium for the browser tests..."
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
  exit 0
fi
echo "The browser tests need Chromium: run 'sudo apt-get install chromium', or set FLOTILLA_NO_BROWSER=1 to leave them out." >&2
exit 1
