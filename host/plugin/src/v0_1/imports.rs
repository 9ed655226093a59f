//! The host's side of each interface.

use std::time::Instant;

use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::bindings::imports::mortise::plugin::{
    clock, host, ledger, model, outbound_http, secrets, settings, types, vocabulary,
};
use super::convert;
use crate::ledger::Rate;
use crate::state::{Grants, State};

impl types::Host for State {}

impl host::Host for State {
    fn log(
        &mut self,
        level: host::Level,
        message: String,
        fields: Vec<(String, String)>,
    ) -> wasmtime::Result<()> {
        let level = match level {
            host::Level::Trace => tracing::Level::TRACE,
            host::Level::Debug => tracing::Level::DEBUG,
            host::Level::Info => tracing::Level::INFO,
            host::Level::Warn => tracing::Level::WARN,
            host::Level::Error => tracing::Level::ERROR,
        };
        State::log(self, level, &message, &fields);
        Ok(())
    }

    fn count(&mut self, name: String, by: u64) -> wasmtime::Result<()> {
        self.grants.counters.count(&name, by);
        Ok(())
    }
}

impl settings::Host for State {
    fn get(&mut self) -> wasmtime::Result<String> {
        Ok(self.grants.settings.clone())
    }
}

impl model::Host for State {
    fn describe(&mut self) -> wasmtime::Result<model::Description> {
        let Some(described) = &self.grants.model else {
            return Err(wasmtime::Error::msg(
                "asked for the model, and the binding names none",
            ));
        };
        let tokens = described.control_tokens.iter();
        let control_tokens = tokens.map(|token| model::ControlToken {
            id: token.id,
            text: token.text.clone(),
            special: token.special,
        });
        Ok(model::Description {
            name: described.name.clone(),
            architecture: described.architecture.clone(),
            chat_template: described.chat_template.clone(),
            bos_token: described.bos_token.clone(),
            eos_token: described.eos_token.clone(),
            control_tokens: control_tokens.collect(),
        })
    }
}

impl vocabulary::Host for State {
    fn get(&mut self) -> wasmtime::Result<vocabulary::Table> {
        let Some(known) = &self.grants.vocabulary else {
            return Err(wasmtime::Error::msg(
                "asked for the vocabulary, and the binding has none",
            ));
        };
        Ok(vocabulary::Table {
            bytes: known.bytes.clone(),
            offsets: known.offsets.clone(),
            eos: known.eos.clone(),
            control: known.control.clone(),
            digest: known.digest.clone(),
        })
    }
}

impl clock::Host for State {
    fn unix_millis(&mut self) -> wasmtime::Result<u64> {
        Ok(State::unix_millis(self))
    }
}

impl ledger::Host for State {
    fn take(
        &mut self,
        bucket: String,
        cost: u64,
        capacity: u64,
        period_ms: u64,
    ) -> wasmtime::Result<ledger::Verdict> {
        let rate = Rate {
            capacity,
            period_ms,
        };
        let verdict = self.grants.ledger.take(&bucket, cost, rate);
        Ok(ledger::Verdict {
            allowed: verdict.allowed,
            remaining: verdict.remaining,
            retry_after_ms: verdict.retry_after_ms,
        })
    }

    fn adjust(
        &mut self,
        bucket: String,
        delta: i64,
        capacity: u64,
        period_ms: u64,
    ) -> wasmtime::Result<()> {
        let rate = Rate {
            capacity,
            period_ms,
        };
        self.grants.ledger.adjust(&bucket, delta, rate);
        Ok(())
    }
}

impl secrets::Host for State {
    fn find(&mut self, candidate: String) -> wasmtime::Result<Option<String>> {
        let digest = Grants::secret_digest(&candidate);
        // Every secret is visited and the match is kept without a branch, so that the time tells
        // nothing about which one it was, or how nearly.
        let mut found = u64::MAX;
        for (index, (_, secret)) in (0u64..).zip(&self.grants.secrets) {
            found.conditional_assign(&index, secret.ct_eq(&digest));
        }
        let index = usize::try_from(found).unwrap_or(usize::MAX);
        Ok(self.grants.secrets.get(index).map(|(name, _)| name.clone()))
    }
}

impl outbound_http::Host for State {
    async fn send(
        &mut self,
        request: outbound_http::Request,
    ) -> wasmtime::Result<Result<outbound_http::Response, outbound_http::Error>> {
        let client = self.grants.http.clone();
        if self.call.http_requests >= client.grant().requests_per_call {
            return Ok(Err(outbound_http::Error::Spent));
        }
        self.call.http_requests += 1;
        let url = request.url.clone();
        let request = convert::http_request(request, self.call.latest_end);
        let began = Instant::now();
        let answer = client.send(request).await;
        tracing::debug!(
            target: "mortise::plugin",
            plugin = self.grants.component.name(),
            request = &*self.call.request_id,
            url = %url.escape_debug(),
            status = answer.as_ref().ok().map(|answer| answer.status),
            error = answer.as_ref().err().map(ToString::to_string),
            took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "a plugin asked another server"
        );
        Ok(answer
            .map(convert::http_response)
            .map_err(convert::http_error))
    }
}
