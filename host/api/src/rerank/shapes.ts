type RerankUsage = { prompt_tokens: integer; total_tokens: integer };

type Reranked = {
  id: string;
  model: string;
  results: { index: integer; relevance_score: number; document?: object }[];
  usage: RerankUsage;
  meta: {
    api_version: { version: "1" | "2" };
    billed_units: { search_units: integer };
  };
};

/** Rows in the shape of text-embeddings-inference, the likeliest first. */
type RerankedTexts = { index: integer; score: number; text?: string }[];

type Scored = {
  id: string;
  object: "list";
  created: integer;
  model: string;
  data: { index: integer; object: "score"; score: number }[];
  usage: RerankUsage;
};
