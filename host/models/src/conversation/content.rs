//! Content parts of a message.

/// One part of a message's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentPart {
    /// Text.
    Text(String),
    /// An image.
    Image(Image),
    /// A recording.
    Audio(Audio),
}

impl ContentPart {
    /// Kind of input that a model must accept to read this part.
    pub fn modality(&self) -> Modality {
        match self {
            Self::Text(_) => Modality::Text,
            Self::Image(_) => Modality::Image,
            Self::Audio(_) => Modality::Audio,
        }
    }

    /// Position of the part in the caller's request; text needs none.
    pub fn origin(&self) -> Option<&PartOrigin> {
        match self {
            Self::Text(_) => None,
            Self::Image(image) => Some(&image.origin),
            Self::Audio(audio) => Some(&audio.origin),
        }
    }
}

impl From<&str> for ContentPart {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Kind of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Modality {
    /// Text.
    Text,
    /// Images.
    Image,
    /// Recordings.
    Audio,
}

/// Position of a part in the caller's request. Errors that are found after translation name the
/// part by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartOrigin {
    /// Path of the part, such as `messages[2].content[0]`.
    pub path: String,
    /// Type of the part in the caller's dialect, such as `image_url`.
    pub kind: String,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The pixels, or their address.
    pub source: ImageSource,
    /// Resolution to read the image in; the model's default if absent.
    pub detail: Option<Detail>,
    /// Position in the request.
    pub origin: PartOrigin,
}

/// Source of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// An address to fetch the file from.
    Url(String),
    /// The bytes of the file.
    Bytes {
        /// Media type, such as `image/png`.
        media_type: String,
        /// The file.
        bytes: Vec<u8>,
    },
}

/// Resolution to read an image in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The model decides.
    Auto,
    /// Fewer tokens.
    Low,
    /// More tokens.
    High,
}

/// A recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audio {
    /// The bytes of the file.
    pub bytes: Vec<u8>,
    /// Format of the file, such as `wav`.
    pub format: String,
    /// Position in the request.
    pub origin: PartOrigin,
}
