// Written by `butlers connect`. Sessions start with the memories of the butler BUTLER_NAME, and each turn is kept.
import { spawn } from "node:child_process"
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const COMMANDS = "COMMANDS"
const LIMIT_MS = 10_000

// Returns what the hook prints; nothing if it fails or takes too long.
const ask = (hook, event) =>
  new Promise((resolve) => {
    const [program, ...words] = COMMANDS[hook]
    const child = spawn(program, words, { stdio: ["pipe", "pipe", "ignore"], timeout: LIMIT_MS })
    let output = ""
    child.stdout.setEncoding("utf8").on("data", (text) => (output += text))
    child.on("error", () => resolve("")).on("close", (code) => resolve(code === 0 ? output.trim() : ""))
    child.stdin.on("error", () => {}).end(JSON.stringify(event))
  })

// Starts the hook with the event in a file: OpenCode may end before a pipe is read.
const hand = (hook, event) => {
  const folder = mkdtempSync(join(tmpdir(), "butlers-"))
  const path = join(folder, "event.json")
  try {
    writeFileSync(path, JSON.stringify(event), { mode: 0o600 })
    const input = openSync(path, "r")
    const [program, ...words] = COMMANDS[hook]
    spawn(program, words, { stdio: [input, "ignore", "ignore"], detached: true }).on("error", () => {}).unref()
    closeSync(input)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

// Keeps the texts and the names of tools; outputs stay in OpenCode, but for the memories that were asked for.
const shorten = ({ info, parts }) => ({
  info: { role: info.role },
  parts: parts.flatMap((part) => {
    if (part.type === "text") return [{ type: "text", text: part.text, synthetic: part.synthetic }]
    if (part.type !== "tool") return []
    const state = part.tool.endsWith("memory_context") ? { output: part.state?.output } : undefined
    return [{ type: "tool", tool: part.tool, callID: part.callID, state }]
  }),
})

export const Butler = async ({ client, directory }) => {
  const told = new Map()
  const unfinished = new Set()

  const context = (session) => {
    if (!told.has(session)) {
      const event = { session_id: session, cwd: directory, source: `process ${process.pid}` }
      told.set(session, ask("session-start", event))
    }
    return told.get(session)
  }

  const keep = async (session) => {
    const { data: info } = await client.session.get({ path: { id: session } })
    if (info?.parentID) return // the session of a subagent
    const { data: messages } = await client.session.messages({ path: { id: session } })
    const start = messages.findLastIndex(({ info }) => info.role === "user")
    if (start < 0) return
    hand("turn-end", {
      session_id: session,
      cwd: directory,
      turn_id: messages[start].info.id,
      told: await told.get(session),
      messages: messages.slice(start).map(shorten),
    })
  }

  return {
    "experimental.chat.system.transform": async ({ sessionID }, output) => {
      const text = sessionID && (await context(sessionID))
      if (text) output.system.push(text)
    },
    event: async ({ event }) => {
      if (event.type === "session.deleted") told.delete(event.properties.info?.id)
      if (event.type !== "session.idle") return
      const work = keep(event.properties.sessionID).catch(() => {})
      unfinished.add(work)
      await work
      unfinished.delete(work)
    },
    dispose: async () => {
      await Promise.all(unfinished)
    },
  }
}
