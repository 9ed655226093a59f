//! Header of a safetensors file, checked before the `safetensors` crate parses it: its parser takes
//! the last of duplicate keys, adds offsets up before it compares them with the file, and keeps lists
//! of any length.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::limits::DIMENSIONS_MAX;
use crate::unique_map::{UniqueMap, duplicate};

/// Bytes before the header, which hold its length.
pub(super) const LENGTH_BYTES: usize = 8;
/// Key of the texts that stand beside the tensors.
const METADATA: &str = "__metadata__";

/// Check that every tensor is described once and ends within the file.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(format!(
            "it has {} bytes, too few for a header",
            bytes.len()
        ));
    };
    let length = u64::from_le_bytes(*length);
    let header = usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length));
    let Some((header, data)) = header else {
        return Err(format!(
            "its header should have {length} bytes and it ends before"
        ));
    };
    let Header(ends) = serde_json::from_slice(header)
        .map_err(|error| format!("its header is not a JSON object of tensors: {error}"))?;
    for (tensor, end) in ends {
        if end > data.len() as u64 {
            return Err(format!(
                "tensor `{tensor}` ends at byte {end} of the data and the file has {}",
                data.len()
            ));
        }
    }
    Ok(())
}

/// End of each tensor in the data.
struct Header(HashMap<String, u64>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut ends = HashMap::new();
        let mut metadata = false;
        while let Some(key) = map.next_key::<String>()? {
            if ends.contains_key(&key) || (metadata && key == METADATA) {
                return Err(duplicate(&key));
            }
            if key == METADATA {
                map.next_value::<UniqueMap<IgnoredAny>>()?;
                metadata = true;
            } else {
                let Tensor { data_offsets, .. } = map.next_value()?;
                ends.insert(key, data_offsets.1);
            }
        }
        Ok(Header(ends))
    }
}

/// Description of a tensor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tensor {
    #[serde(rename = "dtype")]
    _dtype: IgnoredAny,
    #[serde(rename = "shape")]
    _shape: Shape,
    data_offsets: (u64, u64),
}

/// List of at most [`DIMENSIONS_MAX`] sizes.
struct Shape;

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "at most {DIMENSIONS_MAX} sizes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
        let mut dimensions = 0;
        while list.next_element::<usize>()?.is_some() {
            dimensions += 1;
            if dimensions > DIMENSIONS_MAX {
                return Err(A::Error::invalid_length(dimensions, &self));
            }
        }
        Ok(Shape)
    }
}
