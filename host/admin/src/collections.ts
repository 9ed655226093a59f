/** Vectors that are made anew, or were. */
type CollectionVectors = {
  status: "in_progress" | "completed" | "failed" | "cancelled";
  embedding_model?: string;
  files_done?: integer;
  files_total?: integer;
  chunks_done?: integer;
  /** Seconds since 1970. */
  started_at?: integer;
  ended_at?: integer | null;
  last_error?: null | { code: string; message: string };
};

/** A collection of documents: the vector store of a caller. */
type CollectionRow = {
  id: string;
  object: "vector_store";
  /** Account that owns it: `tenant NAME`, or `caller NAME`. */
  owner: string;
  /** In lists. */
  tenant?: string | null;
  /** A caller without a tenant; in lists. */
  caller?: string | null;
  /** Seconds since 1970. */
  created_at: integer;
  name: string;
  description: string | null;
  metadata: object;
  last_active_at: integer;
  expires_after: null;
  expires_at: null;
  embedding_model: string;
  retriever?: string | null;
  usage_bytes: integer;
  file_counts: {
    in_progress: integer;
    completed: integer;
    failed: integer;
    cancelled: integer;
    total: integer;
  };
  /** Chunks that are stored; in lists. */
  chunks?: integer;
  status: "in_progress" | "completed";
  reembedding?: CollectionVectors;
};

type CollectionRows = { object: "list"; data: CollectionRow[]; total: integer };

type DeletedCollection = { id: string; object: "vector_store.deleted"; deleted: boolean };

type CollectionFile = {
  id: string;
  object: "vector_store.file";
  usage_bytes: integer;
  created_at: integer;
  vector_store_id: string;
  status: "in_progress" | "completed" | "failed";
  last_error: null | { code: string; message: string };
  chunking_strategy: {
    type: "static";
    static: { max_chunk_size_tokens: integer; chunk_overlap_tokens: integer };
  };
  attributes: object;
  filename: string;
  progress: { chunks_done: integer; chunks_total: integer | null };
};

type CollectionFiles = {
  object: "list";
  data: CollectionFile[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
};

type RemovedCollectionFile = {
  id: string;
  object: "vector_store.file.deleted";
  deleted: boolean;
};

type CollectionResults = {
  object: "vector_store.search_results.page";
  search_query: string[];
  data: {
    file_id: string;
    filename: string;
    /** 0 to 1. */
    score: number;
    attributes: object;
    /** Passages, with their places in the document's text in bytes. */
    content: { type: "text"; text: string; start: integer; end: integer; page?: integer }[];
  }[];
  has_more: boolean;
  next_page: null;
};
