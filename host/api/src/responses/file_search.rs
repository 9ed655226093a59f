//! The tool `file_search`: a search that the server runs in vector stores of the caller's, the item that tells of it,
//! and the citations of what it found.

use std::sync::Arc;

use mortise_http::Problem;
use mortise_service::{OwnTools, RequestFields};
use serde_json::{Map, Value, json};

use crate::collections::{
    FileSearch, HEADER, RankingFields, RankingOptions, RankingRules, Searched, collection, on_page,
    shown_attributes,
};
use crate::fields::{FieldPath, PathSegment, missing, read, unreadable, wrong_type};
use crate::limits::MAX_SEARCHED_STORES;
use crate::state::ApiState;

/// Results of a search where the caller does not say, as at OpenAI.
const USUAL_RESULTS: u32 = 20;

/// A search that a request opts in to.
#[derive(Debug)]
pub(super) struct Wanted {
    path: FieldPath,
    stores: Vec<String>,
    rules: RankingRules,
}

/// Read an entry of `tools`.
pub(super) fn wanted(path: &FieldPath, tool: &Map<String, Value>) -> Result<Wanted, Problem> {
    const KNOWN: [&str; 5] = [
        "type",
        "vector_store_ids",
        "filters",
        "max_num_results",
        "ranking_options",
    ];
    let mut given = tool.iter().filter(|(_, value)| !value.is_null());
    if let Some((field, _)) = given.find(|(name, _)| !KNOWN.contains(&name.as_str())) {
        return Err(unknown(&path.key(field)));
    }
    let inner = path.key("vector_store_ids");
    let list = match tool.get("vector_store_ids") {
        Some(Value::Array(list)) => list,
        None | Some(Value::Null) => return Err(missing(&inner)),
        Some(other) => return Err(wrong_type(&inner, "an array of ids", other)),
    };
    if list.is_empty() || list.len() > MAX_SEARCHED_STORES {
        let message = format!("`{inner}` must have 1 to {MAX_SEARCHED_STORES} ids");
        return Err(Problem::invalid(inner.to_string(), message));
    }
    let ids = list.iter().enumerate().map(|(at, id)| match id {
        Value::String(id) => Ok(id.clone()),
        other => Err(wrong_type(&inner.index(at), "a string", other)),
    });
    let mut stores = ids.collect::<Result<Vec<_>, _>>()?;
    let mut seen = Vec::new();
    stores.retain(|id| {
        !seen.contains(id) && {
            seen.push(id.clone());
            true
        }
    });
    let asked = RankingOptions {
        filters: match tool.get("filters") {
            None | Some(Value::Null) => None,
            Some(Value::Object(filters)) => Some(filters.clone()),
            Some(other) => return Err(wrong_type(&path.key("filters"), "an object", other)),
        },
        most: match tool.get("max_num_results") {
            None | Some(Value::Null) => None,
            Some(number) => {
                let most = number.as_u64().and_then(|most| u32::try_from(most).ok());
                let inner = path.key("max_num_results");
                Some(most.ok_or_else(|| wrong_type(&inner, "a whole number", number))?)
            }
        },
        ranking: match tool.get("ranking_options") {
            None | Some(Value::Null) => None,
            Some(options) => Some(ranking(&path.key("ranking_options"), options)?),
        },
    };
    Ok(Wanted {
        rules: RankingRules::of(asked, path, USUAL_RESULTS)?,
        path: path.clone(),
        stores,
    })
}

fn ranking(path: &FieldPath, options: &Value) -> Result<RankingFields, Problem> {
    let (read, unread) = read(options).map_err(|(inner, refusal)| {
        let (path, found) = (joined(path, &inner), inner.find(options));
        unreadable(&path, refusal, found)
    })?;
    let mut unread = unread.into_iter();
    let given = unread.find(|inner| inner.find(options).is_some_and(|value| !value.is_null()));
    match given.map(|inner| joined(path, &inner)) {
        Some(path) => Err(unknown(&path)),
        None => Ok(read),
    }
}

fn joined(path: &FieldPath, inner: &FieldPath) -> FieldPath {
    let segments = inner.segments().iter();
    segments.fold(path.clone(), |path, segment| match segment {
        PathSegment::Key(key) => path.key(key),
        PathSegment::Index(index) => path.index(*index),
    })
}

fn unknown(path: &FieldPath) -> Problem {
    let mut problem = Problem::invalid(path.to_string(), format!("unknown field `{path}`"));
    problem.code = "unknown_parameter".to_owned();
    problem
}

/// Give a request its search, in vector stores that must be there.
pub(super) async fn open(
    state: &Arc<ApiState>,
    owner: &Arc<str>,
    wanted: Option<Wanted>,
    fields: &mut RequestFields,
) -> Result<Option<Arc<FileSearch>>, Problem> {
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    let mut stores = Vec::with_capacity(wanted.stores.len());
    for (at, id) in wanted.stores.iter().enumerate() {
        let param = wanted.path.key("vector_store_ids").index(at).to_string();
        stores.push(collection(state, owner, id, &param).await?);
    }
    let search = Arc::new(FileSearch::new(Arc::clone(state), stores, wanted.rules));
    fields.own_tools = OwnTools::new(vec![Arc::clone(&search) as _]);
    Ok(Some(search))
}

/// The item of a search.
pub(super) fn item(id: &str, status: &str, searched: &Searched, results: bool) -> Value {
    let rows = searched.hits.iter().map(|(number, found)| {
        let row = json!({
            "file_id": found.file,
            "filename": found.name,
            "score": found.score,
            "attributes": shown_attributes(&found.attributes),
            "text": found.text,
            // Extensions: the number that the model cites it by, and its place in the document.
            "number": number,
            "start": found.start,
            "end": found.end,
        });
        on_page(row, found.page)
    });
    json!({
        "id": id,
        "type": "file_search_call",
        "status": status,
        "queries": [searched.query],
        "results": results.then(|| rows.collect::<Vec<_>>()),
    })
}

/// Citations in the text of an answer: marks such as `[1]` that number a passage which a search found.
pub(super) fn citations(text: &str, search: &FileSearch) -> Vec<Value> {
    let cited = marks(text).into_iter().filter_map(|(index, number)| {
        let found = search.passage(number)?;
        let citation = json!({
            "type": "file_citation",
            "index": index,
            "file_id": found.file,
            "filename": found.name,
            // Extensions: the place of the passage in the document.
            "start": found.start,
            "end": found.end,
        });
        Some(on_page(citation, found.page))
    });
    cited.collect()
}

/// Numbers in brackets, each with the place of its bracket in characters.
fn marks(text: &str) -> Vec<(usize, usize)> {
    let (mut marks, mut characters, mut at) = (Vec::new(), 0, 0);
    while let Some(opening) = text[at..].find('[') {
        characters += text[at..at + opening].chars().count();
        let inner = &text[at + opening + 1..];
        let numbers = inner.find(']').map(|closing| numbers(&inner[..closing]));
        let numbers = numbers.unwrap_or_default();
        marks.extend(numbers.into_iter().map(|number| (characters, number)));
        characters += 1;
        at += opening + 1;
    }
    marks
}

/// `1` and `1, 2` as numbers; nothing else is a mark.
fn numbers(text: &str) -> Vec<usize> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    match parts.iter().all(|part| digits(part)) {
        true => parts.iter().filter_map(|part| part.parse().ok()).collect(),
        false => Vec::new(),
    }
}

/// Check an item that a caller gives back.
pub(super) fn check(path: &FieldPath, item: &Map<String, Value>) -> Result<(), Problem> {
    let queries = path.key("queries");
    match item.get("queries") {
        Some(Value::Array(list)) => {
            if let Some(at) = list.iter().position(|query| !query.is_string()) {
                return Err(wrong_type(&queries.index(at), "a string", &list[at]));
            }
        }
        None => return Err(missing(&queries)),
        Some(other) => return Err(wrong_type(&queries, "an array of strings", other)),
    }
    let results = path.key("results");
    match item.get("results") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(rows)) => rows.iter().enumerate().try_for_each(|(at, row)| {
            let path = results.index(at);
            let Value::Object(row) = row else {
                return Err(wrong_type(&path, "an object", row));
            };
            match row.get("text") {
                Some(Value::String(_)) => Ok(()),
                None => Err(missing(&path.key("text"))),
                Some(other) => Err(wrong_type(&path.key("text"), "a string", other)),
            }
        }),
        Some(other) => Err(wrong_type(&results, "an array of results", other)),
    }
}

/// The arguments and the result of a search that an item tells of; `None` if it does not have the results.
pub(super) fn replayed(item: &Value) -> Option<(String, String)> {
    let rows = item["results"].as_array()?;
    let query = item["queries"][0].as_str()?;
    let mut result = HEADER.to_owned();
    for (row, usual) in rows.iter().zip(1u64..) {
        let field = |name: &str| row[name].as_str().unwrap_or_default();
        let number = row["number"].as_u64().unwrap_or(usual);
        result += &format!("[{number}] {}\n{}\n\n", field("filename"), field("text"));
    }
    Some((json!({"query": query}).to_string(), result))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_in_brackets_are_marks() {
        assert_eq!(marks("Wörld [1] and [2, 13]."), [(6, 1), (14, 2), (14, 13)]);
        assert_eq!(marks("[[3]]"), [(1, 3)]);
        let none = "[] [a] [1 [-1] [1,] [99999999999999999999999]";
        assert!(marks(none).is_empty(), "{:?}", marks(none));
    }

    proptest! {
        #[test]
        fn a_mark_stands_where_its_bracket_is(text in "[\\[\\]0-9, aäß]{0,40}") {
            let characters: Vec<char> = text.chars().collect();
            for (index, _) in marks(&text) {
                prop_assert_eq!(characters[index], '[');
            }
        }
    }

    #[test]
    fn a_search_that_a_caller_gives_back_is_read_again() {
        let item = json!({"queries": ["zebra"], "results": [
            {"filename": "a.md", "text": "One.", "number": 4}, {"text": "Two."}]});
        let (arguments, result) = replayed(&item).expect("results");
        assert_eq!(arguments, r#"{"query":"zebra"}"#);
        assert_eq!(result, format!("{HEADER}[4] a.md\nOne.\n\n[2] \nTwo.\n\n"));
        assert_eq!(
            replayed(&json!({"queries": ["zebra"], "results": null})),
            None
        );
    }
}
