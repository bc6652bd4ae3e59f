# Sourced by a peer's `run`. Replaces the shell with peer.py in the peer's virtual environment.
peer="$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)"
export PYTHONPATH="$peer/.."
exec "$peer/.build/venv/bin/python" "$peer/peer.py" "$@"
