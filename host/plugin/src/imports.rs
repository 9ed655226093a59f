//! Host functions that plugins may call. An interface has only gained functions from version to version of the contract, and
//! what a component imports is checked by the structure of its types: so each is linked under the name that the
//! component gives it, whatever its version.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mortise_outbound::{OutboundRequest, OutboundResponse, RequestError};
use subtle::{ConditionallySelectable, ConstantTimeEq};
use wasmtime::StoreContextMut;
use wasmtime::component::{LinkerInstance, WasmList, WasmStr};

use crate::call::Misuse;
use crate::kind;
use crate::kinds::ModelDescription;
use crate::limits::MAX_WITHDRAWALS;
use crate::mask_sink;
use crate::rate_counters::{CountersLost, Rate, Verdict, Withdrawal};
use crate::secret::digest;
use crate::state::StoreData;
use crate::versions::wit;

type Context<'a> = StoreContextMut<'a, StoreData>;
type Instance<'a> = LinkerInstance<'a, StoreData>;

/// Link the functions of an interface of ours.
pub(crate) fn link(instance: &mut Instance<'_>, interface: &str) -> wasmtime::Result<()> {
    match interface {
        // It has no functions.
        "types" => Ok(()),
        "host" => host(instance),
        "settings" => instance.func_wrap("get", |context: Context<'_>, ()| {
            Ok((context.data().grants.settings.clone(),))
        }),
        kind::INNER_SETTINGS => instance.func_wrap("get", |context: Context<'_>, ()| {
            Ok((context.data().grants.inner_settings.clone(),))
        }),
        "model" => {
            instance.func_wrap("describe", |context: Context<'_>, ()| {
                Ok((model(context.data())?,))
            })?;
            instance.func_wrap("response-template", |context: Context<'_>, ()| {
                Ok((response_template(context.data())?,))
            })
        }
        "vocabulary" => instance.func_wrap("get", |context: Context<'_>, ()| {
            Ok((vocabulary(context.data())?,))
        }),
        "clock" => instance.func_wrap("unix-millis", |context: Context<'_>, ()| {
            ask_outside(context.data(), "clock")?;
            Ok((context.data().unix_millis(),))
        }),
        "ledger" => ledger(instance),
        "secrets" => instance.func_wrap("find", |context: Context<'_>, (candidate,): (String,)| {
            Ok((find_secret(context.data(), &candidate),))
        }),
        "outbound-http" => instance.func_wrap_async(
            "send",
            |context: Context<'_>, (request,): (wit::outbound_http::Request,)| {
                Box::new(async move {
                    ask_outside(context.data(), "outbound-http")?;
                    Ok((send(context, request).await,))
                })
            },
        ),
        "mask-sink" => mask_sink::add_to_linker(instance),
        _ => {
            let message = format!("the interface `{interface}` is not known");
            Err(wasmtime::Error::msg(message))
        }
    }
}

fn host(instance: &mut Instance<'_>) -> wasmtime::Result<()> {
    // Texts are read only if they are written.
    type Line = (wit::host::Level, WasmStr, WasmList<(String, String)>);
    instance.func_wrap(
        "log",
        |mut context: Context<'_>, (level, message, fields): Line| {
            let level = match level {
                wit::host::Level::Trace => tracing::Level::TRACE,
                wit::host::Level::Debug => tracing::Level::DEBUG,
                wit::host::Level::Info => tracing::Level::INFO,
                wit::host::Level::Warn => tracing::Level::WARN,
                wit::host::Level::Error => tracing::Level::ERROR,
            };
            if context.data_mut().takes_line() {
                let message = message.to_str(&context)?.into_owned();
                let fields = fields
                    .iter(&mut context)?
                    .collect::<wasmtime::Result<Vec<_>>>()?;
                context.data_mut().log(level, &message, &fields);
            }
            Ok(())
        },
    )?;
    instance.func_wrap(
        "count",
        |context: Context<'_>, (name, by): (String, u64)| {
            context.data().grants.counters.count(&name, by);
            Ok(())
        },
    )
}

/// Refuse what changes with time to an instance that others are to begin with the memory of.
fn ask_outside(state: &StoreData, interface: &str) -> wasmtime::Result<()> {
    match state.is_pattern {
        true => Err(Misuse(format!("its preparation uses `{interface}`")).into()),
        false => Ok(()),
    }
}

fn described(state: &StoreData) -> wasmtime::Result<&ModelDescription> {
    let described = state.grants.model.as_deref();
    described.ok_or_else(|| wasmtime::Error::msg("asked for the model, and the binding names none"))
}

fn response_template(state: &StoreData) -> wasmtime::Result<Option<String>> {
    Ok(described(state)?.response_template.clone())
}

fn model(state: &StoreData) -> wasmtime::Result<wit::model::Description> {
    let described = described(state)?;
    let tokens = described.control_tokens.iter();
    let control_tokens = tokens.map(|token| wit::model::ControlToken {
        id: token.id,
        text: token.text.clone(),
        special: token.special,
    });
    Ok(wit::model::Description {
        name: described.name.clone(),
        architecture: described.architecture.clone(),
        chat_template: described.chat_template.clone(),
        bos_token: described.bos_token.clone(),
        eos_token: described.eos_token.clone(),
        control_tokens: control_tokens.collect(),
    })
}

fn vocabulary(state: &StoreData) -> wasmtime::Result<wit::vocabulary::Table> {
    let Some(known) = &state.grants.vocabulary else {
        return Err(wasmtime::Error::msg(
            "asked for the vocabulary, and the binding has none",
        ));
    };
    Ok(wit::vocabulary::Table {
        bytes: known.bytes.clone(),
        offsets: known.offsets.clone(),
        eos: known.eos.clone(),
        control: known.control.clone(),
        digest: known.digest.clone(),
    })
}

/// Arguments of `take` and of `adjust`: the bucket, the cost or the change, the capacity, the period.
type Draw<T> = (String, T, u64, u64);

fn ledger(instance: &mut Instance<'_>) -> wasmtime::Result<()> {
    instance.func_wrap_async(
        "take-all",
        |context: Context<'_>, (withdrawals,): (Vec<wit::ledger::Withdrawal>,)| {
            Box::new(async move { Ok((take_all(context, withdrawals).await?,)) })
        },
    )?;
    instance.func_wrap_async(
        "take",
        |mut context: Context<'_>, (bucket, cost, capacity, period_ms): Draw<u64>| {
            Box::new(async move {
                let rate = Rate {
                    capacity,
                    period_ms,
                };
                ask_outside(context.data(), "ledger")?;
                let StoreData { grants, call, .. } = context.data();
                let (ledger, asks) = (Arc::clone(&grants.ledger), call.takes_nothing);
                let verdict = match asks {
                    true => ledger.peek(&bucket, cost, rate).await,
                    false => ledger.take(&bucket, cost, rate).await,
                };
                let verdict = verdict.unwrap_or_else(|CountersLost| {
                    // Whatever the guest makes of it, its decision does not count.
                    context.data_mut().call.counters_lost = true;
                    Verdict::NEVER
                });
                Ok((verdict_to_guest(verdict),))
            })
        },
    )?;
    instance.func_wrap_async(
        "adjust",
        |context: Context<'_>, (bucket, delta, capacity, period_ms): Draw<i64>| {
            Box::new(async move {
                let rate = Rate {
                    capacity,
                    period_ms,
                };
                ask_outside(context.data(), "ledger")?;
                let StoreData { grants, call, .. } = context.data();
                let (ledger, asks) = (Arc::clone(&grants.ledger), call.takes_nothing);
                if !asks {
                    ledger.adjust(&bucket, delta, rate).await;
                }
                Ok(())
            })
        },
    )
}

async fn take_all(
    mut context: Context<'_>,
    withdrawals: Vec<wit::ledger::Withdrawal>,
) -> wasmtime::Result<Vec<wit::ledger::Verdict>> {
    let count = withdrawals.len();
    if count > MAX_WITHDRAWALS {
        let message =
            format!("asked for {count} withdrawals at once, of at most {MAX_WITHDRAWALS}");
        return Err(Misuse(message).into());
    }
    let withdrawals = withdrawals.into_iter().map(|one| Withdrawal {
        bucket: one.bucket,
        cost: one.cost,
        rate: Rate {
            capacity: one.capacity,
            period_ms: one.period_ms,
        },
    });
    let withdrawals: Vec<Withdrawal> = withdrawals.collect();
    ask_outside(context.data(), "ledger")?;
    let StoreData { grants, call, .. } = context.data();
    let (ledger, takes) = (Arc::clone(&grants.ledger), !call.takes_nothing);
    let verdicts = ledger.take_all(&withdrawals, takes).await;
    let verdicts = verdicts.unwrap_or_else(|CountersLost| {
        context.data_mut().call.counters_lost = true;
        vec![Verdict::NEVER; count]
    });
    Ok(verdicts.into_iter().map(verdict_to_guest).collect())
}

fn verdict_to_guest(verdict: Verdict) -> wit::ledger::Verdict {
    wit::ledger::Verdict {
        allowed: verdict.allowed,
        remaining: verdict.remaining,
        retry_after_ms: verdict.retry_after_ms,
    }
}

fn find_secret(state: &StoreData, candidate: &str) -> Option<String> {
    let StoreData { grants, call, .. } = state;
    let mut handles = call.handles.iter();
    let digest = match handles.find(|(handle, _)| handle == candidate) {
        Some((_, digest)) => *digest,
        None => digest(candidate),
    };
    // Every secret is visited and the match is kept without a branch, so that the time tells
    // nothing about which one it was, or how nearly.
    let mut found = u64::MAX;
    for (index, secret) in (0u64..).zip(&grants.secrets) {
        found.conditional_assign(&index, secret.digest().ct_eq(&digest));
    }
    let index = usize::try_from(found).unwrap_or(usize::MAX);
    grants.secrets.get(index).map(|secret| secret.name.clone())
}

/// The guest waits for it as for any function; the host does other things meanwhile.
async fn send(
    mut context: Context<'_>,
    request: wit::outbound_http::Request,
) -> Result<wit::outbound_http::Response, wit::outbound_http::Error> {
    let state = context.data_mut();
    let client = state.grants.http.clone();
    let spent = state.call.http_requests >= client.grant().requests_per_call;
    if spent || state.call.sends_nothing {
        return Err(wit::outbound_http::Error::Spent);
    }
    state.call.http_requests += 1;
    let url = request.url.clone();
    let request = http_request(request, state.call.latest_end);
    let began = Instant::now();
    let answer = client.send(request).await;
    tracing::debug!(
        target: "mortise::plugin",
        plugin = state.grants.component.name(),
        request = &*state.call.request_id,
        url = %url.escape_debug(),
        status = answer.as_ref().ok().map(|answer| answer.status),
        error = answer.as_ref().err().map(ToString::to_string),
        took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        "a plugin asked another server"
    );
    answer.map(http_response).map_err(http_error)
}

/// A request that must be over when its call is.
fn http_request(request: wit::outbound_http::Request, latest_end: Instant) -> OutboundRequest {
    let left = latest_end.saturating_duration_since(Instant::now());
    let wanted = request.timeout_ms.map(u64::from).map(Duration::from_millis);
    OutboundRequest {
        method: request.method,
        url: request.url,
        headers: request.headers,
        body: request.body,
        timeout: Some(wanted.map_or(left, |wanted| wanted.min(left))),
    }
}

fn http_response(response: OutboundResponse) -> wit::outbound_http::Response {
    wit::outbound_http::Response {
        status: response.status,
        headers: response.headers,
        body: response.body,
    }
}

fn http_error(error: RequestError) -> wit::outbound_http::Error {
    match error {
        RequestError::Invalid(text) => wit::outbound_http::Error::Invalid(text),
        RequestError::Denied(text) => wit::outbound_http::Error::Denied(text),
        RequestError::Unreachable(text) => wit::outbound_http::Error::Unreachable(text),
        RequestError::Timeout => wit::outbound_http::Error::Timeout,
        RequestError::TooLarge { .. } => wit::outbound_http::Error::TooLarge,
    }
}
