//! Query parameters, and the pages of lists.

use http::Uri;
use mortise_http::Problem;
use mortise_store::{Page, RecordPage};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

/// Entries of a page where the caller does not say, and at most.
const PAGE: usize = 20;
pub(crate) const MAX_ENTRIES: usize = 100;

/// Parameters of a query, in order.
#[derive(Debug, Default)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// # Errors
    /// When the caller gives a parameter that is not in `known`. One that ends in `[` stands for all that
    /// begin so.
    pub(crate) fn of(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        let decoded = |text: &str| {
            let text = text.replace('+', " ");
            percent_decode_str(&text).decode_utf8_lossy().into_owned()
        };
        let pairs = uri.query().unwrap_or_default().split('&');
        let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        let pairs: Vec<(String, String)> = pairs.collect();
        let is_known = |name: &str| {
            known.iter().any(|known| match known.strip_suffix('[') {
                Some(_) => name.starts_with(known),
                None => *known == name.trim_end_matches("[]"),
            })
        };
        if let Some((name, _)) = pairs.iter().find(|(name, _)| !is_known(name)) {
            let name: String = name.chars().take(64).collect();
            let known = known.join("`, `");
            return Err(Problem::invalid(
                name.as_str(),
                format!("unknown query parameter `{name}`; known are `{known}`"),
            ));
        }
        Ok(Self(pairs))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Members of an object that is written as `name[key]=value`.
    pub(crate) fn members(&self, name: &str) -> Vec<(String, String)> {
        let member = |(key, value): &(String, String)| {
            let key = key.strip_prefix(name)?.strip_prefix('[')?;
            Some((key.strip_suffix(']')?.to_owned(), value.clone()))
        };
        self.0.iter().filter_map(member).collect()
    }

    /// A boolean; false without one.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Problem::invalid(
                name,
                format!("`{name}` must be true or false"),
            )),
        }
    }

    /// A number from 0 on.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let parsed = self.get(name).map(str::parse).transpose();
        parsed.map_err(|_| Problem::invalid(name, format!("`{name}` must be an integer from 0 on")))
    }

    /// The page that `after`, `limit` and `order` ask for.
    pub(crate) fn page(&self, ascending: bool) -> Result<Page, Problem> {
        self.page_within(ascending, PAGE, MAX_ENTRIES)
    }

    /// The page that `after`, `limit` and `order` ask for: `usual` entries where the caller gives no limit, and `most`
    /// at most.
    pub(crate) fn page_within(
        &self,
        ascending: bool,
        usual: usize,
        most: usize,
    ) -> Result<Page, Problem> {
        let limit = match self.number("limit")? {
            None => usual,
            Some(limit) => usize::try_from(limit)
                .ok()
                .filter(|limit| *limit <= most)
                .ok_or_else(|| {
                    Problem::invalid("limit", format!("`limit` must be at most {most}"))
                })?,
        };
        let ascending = match self.get("order") {
            None => ascending,
            Some("asc") => true,
            Some("desc") => false,
            Some(_) => {
                return Err(Problem::invalid("order", "`order` must be `asc` or `desc`"));
            }
        };
        Ok(Page {
            after: self.get("after").map(str::to_owned),
            limit,
            ascending,
        })
    }
}

/// A list as OpenAI writes it.
pub(crate) fn list_body(listing: RecordPage<Value>) -> Value {
    let id = |entry: Option<&Value>| entry.and_then(|entry| entry.get("id")).cloned();
    let (first, last) = (id(listing.entries.first()), id(listing.entries.last()));
    json!({
        "object": "list",
        "data": listing.entries,
        "first_id": first,
        "last_id": last,
        "has_more": listing.more,
    })
}
