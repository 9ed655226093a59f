type LoginToken = { token: string };

type LoginProblem = {
  error: {
    code: string;
    message: string;
    details: { reason: string; param: string | null };
    retry_after_seconds?: integer;
  };
};
