# Sourced by a peer's `setup`. Builds .build/venv from requirements.txt with ${PYTHON:-python3}, if necessary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[1]}")"
if ! cmp --quiet requirements.txt .build/installed.txt; then
    rm -rf .build
    mkdir .build
    "${PYTHON:-python3}" -m venv .build/venv
    .build/venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
    cp requirements.txt .build/installed.txt
fi
