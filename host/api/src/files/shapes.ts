type File = {
  id: string;
  object: "file";
  bytes: integer;
  /** Seconds since 1970. */
  created_at: integer;
  filename: string;
  purpose: string;
  status: "processed";
  expires_at?: integer;
};

type Files = {
  object: "list";
  data: File[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
};

type DeletedFile = { id: string; object: "file"; deleted: boolean };
