//! `metadata`: labels of the caller's own. Policies are told of them, and one of them is a priority.

use mortise_http::Problem;
use mortise_service::RequestFields;
use serde_json::Value;

use crate::limits::MAX_METADATA_BYTES;

/// Label by which a request can let others go first.
const PRIORITY: &str = "priority";

/// Write the labels to a request. One that is no object is nobody's label.
pub(crate) fn write(metadata: Option<&Value>, request: &mut RequestFields) -> Result<(), Problem> {
    let Some(labels) = metadata.filter(|labels| labels.is_object()) else {
        return Ok(());
    };
    let text = labels.to_string();
    if text.len() > MAX_METADATA_BYTES {
        let text = format!(
            "`metadata` has {} bytes as JSON; at most {MAX_METADATA_BYTES} are taken",
            text.len()
        );
        return Err(Problem::invalid("metadata", text));
    }
    request.labelled_priority = waived(&labels[PRIORITY]);
    request.metadata = Some(text);
    Ok(())
}

/// Steps of priority that are left to others: one for `low`, or so many. A caller cannot go before others by a label, and
/// any other word is one of its own.
fn waived(priority: &Value) -> u32 {
    let number = match priority {
        Value::String(word) if word == "low" => Some(1),
        Value::String(word) => word.parse().ok(),
        other => other.as_u64(),
    };
    number.map_or(0, |number| u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn waived_by(labels: &Value) -> u32 {
        let mut request = RequestFields::default();
        write(Some(labels), &mut request).expect("labels");
        request.labelled_priority
    }

    #[test]
    fn feature_f15_a_label_lets_others_go_first_and_nobody_before_them() {
        for (priority, waived) in [
            (json!("low"), 1),
            (json!("normal"), 0),
            (json!("high"), 0),
            (json!(3), 3),
            (json!("3"), 3),
            (json!(-3), 0),
            (json!(1.5), 0),
            (json!(u64::MAX), u32::MAX),
            (json!(["low"]), 0),
        ] {
            let labels = json!({"priority": priority});
            assert_eq!(waived_by(&labels), waived, "{labels}");
        }
        assert_eq!(waived_by(&json!({"tenant_id": "acme"})), 0);
    }

    #[test]
    fn labels_are_bounded() {
        let mut request = RequestFields::default();
        let long = json!({"k": "x".repeat(MAX_METADATA_BYTES)});
        let problem = write(Some(&long), &mut request).expect_err("too long");
        assert_eq!(problem.param.as_deref(), Some("metadata"));
        for none in [None, Some(&json!("text"))] {
            write(none, &mut request).expect("no labels");
            assert_eq!(request.metadata, None);
        }
    }
}
