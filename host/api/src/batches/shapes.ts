type BatchError = {
  code: string | null;
  line: integer | null;
  message: string;
  param: string | null;
};

type Batch = {
  id: string;
  object: "batch";
  endpoint: string;
  model?: string | null;
  errors: { object: "list"; data: BatchError[] } | null;
  input_file_id: string;
  completion_window: string;
  status:
    | "validating"
    | "failed"
    | "in_progress"
    | "finalizing"
    | "completed"
    | "expired"
    | "cancelling"
    | "cancelled";
  output_file_id: string | null;
  error_file_id: string | null;
  /** Seconds since 1970, here and below. */
  created_at: integer;
  in_progress_at: integer | null;
  expires_at: integer;
  finalizing_at: integer | null;
  completed_at: integer | null;
  failed_at: integer | null;
  expired_at: integer | null;
  cancelling_at: integer | null;
  cancelled_at: integer | null;
  request_counts: { total: integer; completed: integer; failed: integer };
  usage?: any;
  metadata: { [key: string]: string } | null;
};

type Batches = {
  object: "list";
  data: Batch[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
};
