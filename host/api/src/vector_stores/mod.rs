//! OpenAI's vector stores: collections of files in which callers search by meaning and by words.

mod all;
mod contract;
mod files;
mod reembed;
mod request;
mod search;
mod stores;

use std::sync::Arc;

use mortise_http::contract::Routes;
use mortise_http::{Api, Conventions, Dialect};

use crate::collections::Collections;
use crate::openai_error::error_body;

pub use self::all::{AllCollections, CollectionQuery};

const STORES: &str = "/v1/vector_stores";
const STORE: &str = "/v1/vector_stores/{id}";
const SEARCH: &str = "/v1/vector_stores/{id}/search";
const FILES: &str = "/v1/vector_stores/{id}/files";
const FILE: &str = "/v1/vector_stores/{id}/files/{file_id}";
const REEMBED: &str = "/v1/vector_stores/{id}/reembed";
const CONTENT: &str = "/v1/vector_stores/{id}/files/{file_id}/content";

/// The dialect's routes.
pub fn api(collections: Arc<Collections>) -> Api {
    let routes = Routes::default()
        .on(contract::create(), stores::create)
        .on(contract::list(), stores::list)
        .on(contract::get(), stores::retrieve)
        .on(contract::update(), stores::update)
        .on(contract::delete(), stores::delete)
        .on(contract::search(), search::search)
        .on(contract::reembed(), reembed::begin)
        .on(contract::get_reembedding(), reembed::retrieve)
        .on(contract::cancel_reembedding(), reembed::cancel)
        .on(contract::attach(), files::attach)
        .on(contract::list_files(), files::list)
        .on(contract::get_file(), files::retrieve)
        .on(contract::update_file(), files::update)
        .on(contract::detach(), files::detach)
        .on(contract::content(), files::content);
    let (router, operations) = routes.into_parts();
    Api {
        router: router.with_state(collections),
        dialect: Dialect {
            prefix: STORES,
            shape: error_body,
            conventions: Conventions::NONE,
        },
        routes: &[STORES, STORE],
        contract: contract::contract(operations),
    }
}
