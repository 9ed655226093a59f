//! Lists of objects.

use std::collections::BTreeMap;

use rusty_s3::actions::ListObjectsV2;

use crate::client::{ObjectStore, checked, network, signed, text};
use crate::error::{ObjectStoreError, unusable};
use crate::limits::{MAX_LISTED, MAX_PAGE_BYTES, MAX_PAGES};

impl ObjectStore {
    /// Names of the objects whose names begin like this, each with what names its content (`ETag`).
    ///
    /// # Errors
    /// When the store refuses, or its list makes no sense.
    pub fn list(&self, beginning: &str) -> Result<BTreeMap<String, String>, ObjectStoreError> {
        let (what, prefix) = (format!("list of {beginning}"), self.key(beginning));
        let mut found = BTreeMap::new();
        let mut from: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = self.persistent(|| {
                let mut action = self.bucket.list_objects_v2(Some(&self.credentials));
                action.with_prefix(&prefix);
                if let Some(from) = &from {
                    action.with_continuation_token(from);
                }
                let answer = self.agent.get(signed(&action)).call();
                text(
                    &what,
                    checked(&what, answer.map_err(network(&what))?)?,
                    MAX_PAGE_BYTES,
                )
            })?;
            let page = ListObjectsV2::parse_response(&page);
            let page = page.map_err(|_| unusable(&what, "it is no list of objects"))?;
            for object in page.contents {
                let Some(name) = object.key.strip_prefix(&self.prefix) else {
                    return Err(unusable(&what, "it lists what was not asked for"));
                };
                if !name.starts_with(beginning) {
                    return Err(unusable(&what, "it lists what was not asked for"));
                }
                found.insert(name.to_owned(), object.etag.unwrap_or_default());
                if found.len() > MAX_LISTED {
                    let problem = format!("it has more than {MAX_LISTED} objects");
                    return Err(unusable(&what, problem));
                }
            }
            match page.next_continuation_token {
                None => return Ok(found),
                Some(next) if from.as_ref() == Some(&next) => {
                    return Err(unusable(&what, "its pages go round in a circle"));
                }
                next => from = next,
            }
        }
        Err(unusable(
            &what,
            format!("it has more than {MAX_PAGES} pages"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rusty_s3::actions::{CompleteMultipartUploadResponse, CreateMultipartUpload};

    use super::*;

    const PAGE: &str = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>m</Name>\
                        <Contents><Key>a%2Fb</Key><ETag>&quot;1&quot;</ETag><Size>3</Size></Contents>\
                        <IsTruncated>false</IsTruncated></ListBucketResult>";

    proptest! {
        #[test]
        fn what_is_no_list_is_refused_and_no_more(
            at in 0..PAGE.len(),
            cut in 0..40_usize,
            put in "[<>/&;a-zA-Z0-9\"%= \u{0}-\u{7f}]{0,12}",
        ) {
            let (before, rest) = PAGE.split_at(at);
            let text = format!("{before}{put}{}", rest.get(cut..).unwrap_or_default());
            // Each is read or refused; none panics.
            let _ = ListObjectsV2::parse_response(&text);
            let _ = CreateMultipartUpload::parse_response(&text);
            let _ = CompleteMultipartUploadResponse::parse(&text);
        }
    }
}
