type VectorStore = {
  id: string;
  object: "vector_store";
  /** Seconds since 1970. */
  created_at: integer;
  name: string;
  description: string | null;
  metadata: object;
  last_active_at: integer;
  expires_after: null;
  expires_at: null;
  /** An extension. */
  embedding_model: string;
  /** The plugin that divides its documents, rewrites queries and chooses passages; an extension. */
  retriever?: string | null;
  usage_bytes: integer;
  file_counts: {
    in_progress: integer;
    completed: integer;
    failed: integer;
    cancelled: integer;
    total: integer;
  };
  status: "in_progress" | "completed";
  /** The last time that vectors were made anew; an extension. */
  reembedding?: Reembedding;
};

type Reembedding = {
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

type VectorStores = {
  object: "list";
  data: VectorStore[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
};

type DeletedVectorStore = { id: string; object: "vector_store.deleted"; deleted: boolean };

type VectorStoreFile = {
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
  /** An extension. */
  filename: string;
  /** An extension. */
  progress: { chunks_done: integer; chunks_total: integer | null };
};

type VectorStoreFiles = {
  object: "list";
  data: VectorStoreFile[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
};

type DeletedVectorStoreFile = {
  id: string;
  object: "vector_store.file.deleted";
  deleted: boolean;
};

/** A chunk, with its place in the document's text in bytes. */
type VectorStoreChunk = { type: "text"; text: string; start: integer; end: integer };

type VectorStoreFileContent = {
  object: "vector_store.file_content.page";
  data: VectorStoreChunk[];
  has_more: boolean;
  next_page: null;
};

type VectorStoreResults = {
  object: "vector_store.search_results.page";
  search_query: string[];
  data: {
    file_id: string;
    filename: string;
    /** 0 to 1. */
    score: number;
    attributes: object;
    content: VectorStoreChunk[];
  }[];
  has_more: boolean;
  next_page: null;
};
