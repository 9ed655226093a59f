//! The chat template that rendered a prompt, as answers tell of it; an extension.

use mortise_service::TemplateUse;
use serde_json::{Value, json};

/// The component and its time.
pub(crate) fn shown(of: &TemplateUse) -> Value {
    let component = of.component.as_ref();
    json!({
        "plugin": component.map(|component| &component.name),
        "version": component.map(|component| &component.version),
        "microseconds": u64::try_from(of.time.as_micros()).unwrap_or(u64::MAX),
    })
}
