//! `POST /v1/files`: a form with a file, written to the store while it arrives.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::Request as HttpRequest;
use mortise_http::{Context, FormLimits, FormPart, Multipart, Owner, Problem, reserve};

use super::{FILES, PURPOSES};
use crate::call::call_of;
use crate::contents::{FileFacts, Writing, key_of};
use crate::files_expiry::Expiry;
use crate::ids::now;
use crate::limits::{MAX_FIELD_BYTES, MAX_FILE_NAME, MAX_UPLOAD_TIME, UPLOAD_MEMORY};
use crate::problem::problem_of;
use crate::state::ApiState;
use crate::stored::{AccountCaller, caller, store_problem};

/// Bytes of a form beside its file.
const FORM_BYTES: u64 = 64 * 1024;

/// Fields of the form, as far as they have come.
#[derive(Default)]
struct Form {
    purpose: Option<String>,
    anchor: Option<String>,
    seconds: Option<String>,
    file: Option<(Writing, String)>,
}

/// `POST /v1/files`
pub(super) async fn create(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    if parts.headers.contains_key("idempotency-key") {
        return Err(Problem::unsupported(
            "Idempotency-Key",
            "the header `Idempotency-Key` is not supported with an upload; leave it out",
        ));
    }
    let call = call_of(&context, FILES, "POST", &parts.headers);
    let identity = state.service.identify(&call).await.map_err(problem_of)?;
    let owner = Owner::new(context.peer.ip(), identity.tenant.as_deref());
    let mut memory = state.http.bodies.open(owner);
    reserve(&mut memory, UPLOAD_MEMORY, UPLOAD_MEMORY)?;
    // What is read is written for somebody, so the whole decision comes first.
    let caller = caller(&state, &context, FILES, "POST", &parts).await?;
    let promised = state.store.promise(&caller.owner).await;
    promised.map_err(store_problem)?;
    let limits = FormLimits {
        bytes: state.max_file_bytes.saturating_add(FORM_BYTES),
        pause: state.http.body.time,
        time: MAX_UPLOAD_TIME,
        draining: state.http.body.draining.clone(),
    };
    let mut body = Multipart::open(&parts.headers, body, limits)?;
    let mut form = Form::default();
    while let Some(part) = body.part().await? {
        form.read(&state, &caller, &mut body, part).await?;
    }
    let object = form.finish(&state).await?;
    Ok(caller.answer(&object))
}

impl Form {
    async fn read(
        &mut self,
        state: &ApiState,
        caller: &AccountCaller,
        body: &mut Multipart,
        part: FormPart,
    ) -> Result<(), Problem> {
        let field = match part.name.as_str() {
            "file" => return self.read_file(state, caller, body, part).await,
            "purpose" => &mut self.purpose,
            "expires_after[anchor]" => &mut self.anchor,
            "expires_after[seconds]" => &mut self.seconds,
            name => {
                let name: String = name.chars().take(64).collect();
                let problem = format!(
                    "unknown field `{name}`; known are `file`, `purpose`, `expires_after[anchor]` and \
                     `expires_after[seconds]`"
                );
                return Err(Problem::invalid(name, problem));
            }
        };
        if field.is_some() {
            return Err(twice(&part.name));
        }
        *field = Some(body.text(&part.name, MAX_FIELD_BYTES).await?);
        Ok(())
    }

    async fn read_file(
        &mut self,
        state: &ApiState,
        caller: &AccountCaller,
        body: &mut Multipart,
        part: FormPart,
    ) -> Result<(), Problem> {
        if self.file.is_some() {
            return Err(twice("file"));
        }
        let Some(name) = part.file_name else {
            return Err(Problem::invalid(
                "file",
                "`file` must be a file, with a name",
            ));
        };
        if name.is_empty() || name.chars().count() > MAX_FILE_NAME {
            let problem = format!("the name of the file must have 1 to {MAX_FILE_NAME} characters");
            return Err(Problem::invalid("file", problem));
        }
        let id = format!("file-{}", uuid::Uuid::new_v4().simple());
        let (key, created) = (key_of(&caller.owner, &id), now());
        let until = crate::retention::after(created, 2 * MAX_UPLOAD_TIME);
        let writing = Writing::begin(state, key, created, until).await;
        let mut writing = writing.map_err(store_problem)?;
        let mut bytes = 0;
        while let Some(data) = body.data().await? {
            bytes += data.len() as u64;
            if bytes > state.max_file_bytes {
                return Err(too_large(state.max_file_bytes));
            }
            writing.add(data).await.map_err(store_problem)?;
        }
        self.file = Some((writing, name));
        Ok(())
    }

    async fn finish(self, state: &ApiState) -> Result<serde_json::Value, Problem> {
        let missing = |name: &str| {
            let problem = format!("the form lacks the field `{name}`");
            let mut problem = Problem::invalid(name, problem);
            "missing_required_parameter".clone_into(&mut problem.code);
            problem
        };
        let purpose = self.purpose.ok_or_else(|| missing("purpose"))?;
        if !PURPOSES.contains(&purpose.as_str()) {
            let known = PURPOSES.join("`, `");
            let problem = format!("`purpose` must be one of `{known}`");
            return Err(Problem::invalid("purpose", problem));
        }
        let expiry = Expiry::of_form(self.anchor.as_deref(), self.seconds.as_deref())?;
        let (writing, name) = self.file.ok_or_else(|| missing("file"))?;
        let created = now();
        let facts = FileFacts {
            name,
            purpose,
            bytes: 0,
            created,
            expires: Expiry::at(expiry, created, state.retention),
        };
        writing.finish(facts).await.map_err(store_problem)
    }
}

fn twice(name: &str) -> Problem {
    Problem::invalid(name, format!("`{name}` stands twice"))
}

fn too_large(limit: u64) -> Problem {
    Problem::new(
        http::StatusCode::PAYLOAD_TOO_LARGE,
        "file_too_large",
        format!("the file is larger than {limit} bytes. Operators: see `store.max_file_mib`"),
    )
    .at("file")
}
