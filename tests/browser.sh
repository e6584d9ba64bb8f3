#!/bin/sh
# Run what needs a browser (Chromium) in the environment of tests/engines.sh, made here. Where there is none, Debian's
# is installed if this is root on Debian, and what needs it is skipped otherwise. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
if ! command -v chromium >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get -qq update &&
        DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium >/dev/null || true
fi
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null; then
    echo "tests/browser.sh: there is no Chromium here, and none could be installed; no page is looked at" >&2
    exit 0
fi
. tests/environment.sh
extend_environment .venv-engines
fill .venv-engines tests/engines.lock
exec .venv-engines/bin/python -m pytest -n 2 -m "not soak" tests/browser "$@"
