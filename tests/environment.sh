# Makes the environments of the tests: `. tests/environment.sh` from the root, then one of the functions. An environment
# is made again where a lock or pyproject.toml has changed.

# Install what a lock names, and privsql as it lies here: fill ENVIRONMENT LOCK
fill() {
    cat "$2" pyproject.toml | cmp -s - "$1/filled-from" && return
    "$1/bin/python" -m pip --quiet --disable-pip-version-check install --require-hashes --requirement "$2"
    "$1/bin/python" -m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation --editable .
    cat "$2" pyproject.toml >"$1/filled-from"
}

# Make .venv-test.
make_environment() {
    [ -x .venv-test/bin/python ] || "${PYTHON:-python3}" -m venv .venv-test
    fill .venv-test tests/requirements.lock
}

# Make an environment that finds in .venv-test whatever it lacks: extend_environment ENVIRONMENT
extend_environment() {
    make_environment
    [ -x "$1/bin/python" ] || .venv-test/bin/python -m venv "$1"
    folder='import sysconfig; print(sysconfig.get_path("purelib"))'
    echo "import site; site.addsitedir('$(.venv-test/bin/python -c "$folder")')" >"$("$1/bin/python" -c "$folder")/test.pth"
}
