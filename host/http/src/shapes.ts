/** The process lives. */
type Health = { status: "ok" };

/** New work is welcome. `plugins` and `models` say what is wrong all the same. */
type Ready = {
  status: "ready";
  plugins?: { refused_files: integer; reload: "ok" | "overdue" | "failed" };
  models?: { failed: integer };
};

/** The server starts and loads its models, or it takes no new work. */
type NotReady = {
  status: "starting" | "draining";
  models?: { state: string; progress: object | null }[];
};

type Sums = {
  total_requests: integer;
  total_prompt_tokens: integer;
  total_completion_tokens: integer;
};

/** Requests and tokens since the start, of all models and of each. */
type Totals = Sums & { uptime_seconds: integer; models: { [name: string]: Sums } };

type Version = { version: string };
