//! Pages of a PDF file: each is interpreted as if it were drawn, and glyphs that would be drawn are noted instead.

use hayro_interpret::font::GlyphRun;
use hayro_interpret::hayro_cmap::{BfString, WritingMode};
use hayro_interpret::hayro_syntax::{DecryptionError, LoadPdfError, Pdf};
use hayro_interpret::kurbo::{Affine, BezPath, Point, Rect, Vec2};
use hayro_interpret::{
    BlendMode, ClipPath, Context, Device, DrawMode, DrawProps, Image, ImageDrawProps,
    InterpreterCache, InterpreterSettings, SoftMask, interpret_page,
};

use crate::layout::{Glyph, Layout};
use crate::lines::written;

/// Pages of a file.
pub const MAX_PAGES: usize = 10_000;

/// Bytes of the text of all pages.
pub const MAX_TEXT_BYTES: usize = 16 << 20;

/// Units of a glyph's own space to the size of its font.
const UNITS: f64 = 1000.0;

/// Reason for which a file is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// The PDF file opens with a password only.
    #[error("the PDF file is encrypted and opens with a password only; send it without one")]
    Encrypted,
    /// The PDF file is encrypted in another way than the standard's.
    #[error("the PDF file is encrypted in a way that is not read; send it without encryption")]
    Encryption,
    /// The PDF file is broken: its pages cannot be found.
    #[error("the PDF file is broken: its pages cannot be found")]
    Broken,
    /// The PDF file has too many pages.
    #[error("the PDF file has {0} pages; a document may have {MAX_PAGES}")]
    Pages(usize),
    /// The text of the PDF file is too long.
    #[error("the PDF file has more text than the {MAX_TEXT_BYTES} bytes that a document may have")]
    TooLong,
    /// The PDF file has pictures only.
    #[error("the PDF file has no text; pictures of pages are not read")]
    NoText,
    /// The PDF file does not tell the letters of its glyphs.
    #[error("the PDF file does not tell which letters its glyphs are")]
    NoLetters,
}

/// The text of each page of a file.
///
/// # Errors
/// When the file has no text that can be read.
pub fn pages(file: Vec<u8>) -> Result<Vec<String>, Unread> {
    let pdf = Pdf::new(file).map_err(|error| match error {
        LoadPdfError::Decryption(DecryptionError::PasswordProtected) => Unread::Encrypted,
        LoadPdfError::Decryption(_) => Unread::Encryption,
        LoadPdfError::Invalid => Unread::Broken,
    })?;
    let pages = pdf.pages();
    match pages.len() {
        0 => return Err(Unread::Broken),
        many if many > MAX_PAGES => return Err(Unread::Pages(many)),
        _ => {}
    }
    let cache = InterpreterCache::new();
    let mut noted = Noted::default();
    let mut lines = Vec::with_capacity(pages.len());
    for page in pages.iter() {
        // Neither a clip nor a scale plays a part: only the places of glyphs to each other count.
        let mut context = Context::new(
            Affine::IDENTITY,
            Rect::new(0.0, 0.0, 1.0, 1.0),
            &cache,
            pdf.xref(),
            InterpreterSettings::default(),
        );
        interpret_page(page, &mut context, &mut noted);
        lines.push(noted.layout.take());
        if noted.bytes > MAX_TEXT_BYTES {
            return Err(Unread::TooLong);
        }
    }
    if noted.mute > noted.glyphs / 2 {
        return Err(Unread::NoLetters);
    }
    let texts = written(&lines);
    match texts.iter().all(String::is_empty) {
        true => Err(Unread::NoText),
        false => Ok(texts),
    }
}

/// Device that draws nothing and notes glyphs.
#[derive(Default)]
struct Noted {
    layout: Layout,
    glyphs: usize,
    /// Glyphs of which no letter is known.
    mute: usize,
    bytes: usize,
}

impl Noted {
    fn note(&mut self, unicode: Option<BfString>, transform: Affine, advance: Vec2) {
        self.glyphs += 1;
        let mut letter = [0; 4];
        let text = match &unicode {
            Some(BfString::Char(one)) => &*one.encode_utf8(&mut letter),
            Some(BfString::String(several)) => several.as_str(),
            None => {
                self.mute += 1;
                "\u{FFFD}"
            }
        };
        self.bytes += text.len();
        if self.bytes > MAX_TEXT_BYTES {
            return;
        }
        let linear = |of: Vec2| transform * of.to_point() - transform * Point::ZERO;
        self.layout.add(&Glyph {
            start: transform * Point::ZERO,
            advance: linear(advance),
            size: linear(Vec2::new(0.0, UNITS)).hypot(),
            text,
        });
    }
}

impl Device<'_> for Noted {
    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, '_>, props: DrawProps<'_>, _: &DrawMode) {
        for glyph in run.glyphs() {
            use hayro_interpret::font::Glyph::{Outline, Type3};
            let width = match &**glyph {
                Outline(outline) => outline.advance_width(),
                Type3(type3) => type3.advance_width(),
            };
            let advance = match run.writing_mode() {
                WritingMode::Horizontal => Vec2::new(width.map_or(UNITS / 2.0, f64::from), 0.0),
                WritingMode::Vertical => Vec2::new(0.0, -UNITS),
            };
            self.note(
                glyph.as_unicode(),
                props.transform * glyph.transform(),
                advance,
            );
        }
    }

    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'_>, _: &DrawMode) {}
    fn push_clip_path(&mut self, _: &ClipPath) {}
    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'_>>, _: BlendMode) {}
    fn draw_image(&mut self, _: Image<'_, '_>, _: ImageDrawProps<'_>) {}
    fn pop_clip(&mut self) {}
    fn pop_transparency_group(&mut self) {}
}
