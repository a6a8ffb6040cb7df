#!/bin/sh
# Runs butlers 0.1.0 for the butler in $BUTLERS_FOLDER, or in ~/butlers/home:
#   butler.sh run                   the MCP server over stdio; the first start creates the butler
#   butler.sh hook EVENT AGENT      a hook of the agent; it says nothing where there is no butler
# Agents that share one file of hooks run all of them: a hook of another agent ends at once.
set -eu

folder=${BUTLERS_FOLDER:-$HOME/butlers/home}
PATH=$PATH:$HOME/.local/bin
butlers=butlers
command -v butlers >/dev/null || butlers='uvx --from butlers==0.1.0 butlers'

case $1 in
run)
    [ -f "$folder/butler.toml" ] || $butlers init "$folder" >&2
    exec $butlers run "$folder" --stdio
    ;;
hook)
    # Codex sets PLUGIN_ROOT for the hooks of a plugin, Claude Code does not.
    running=claude-code
    [ -z "${PLUGIN_ROOT:-}" ] || running=codex
    [ "$3" = "$running" ] || [ "$3" = gemini ] || exit 0
    [ -f "$folder/butler.toml" ] || exit 0
    exec $butlers hook "$2" "$folder" --for "$3"
    ;;
esac
