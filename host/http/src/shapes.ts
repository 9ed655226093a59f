type CheckState = "ok" | "degraded" | "failed";

/** Whether the process lives; with 503, only a restart helps. */
type Health = { status: "ok" | "failed"; checks: { engine?: CheckState } };

/** States of the server's parts, and of those that are not `ok` what is wrong. */
type Parts = {
  checks: { [part: string]: CheckState };
  engine?: { stuck_seconds: integer };
  store?: { problem: "full" | "lost" };
  disk?: { free_mib: integer };
  audit?: { lost_entries: integer };
  plugins?: { refused_files: integer; reload: "ok" | "overdue" | "failed" };
  models?: { failed: integer };
};

/** New work is welcome. */
type Ready = Parts & { status: "ready" };

/** A part has failed that new work needs; or the server starts and loads its models, or stops. */
type NotReady =
  | (Parts & { status: "not_ready" })
  | { status: "starting"; models: { state: string; progress: object | null }[] }
  | { status: "draining" };

type Version = { version: string };
