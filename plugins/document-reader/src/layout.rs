//! Glyphs to lines: words and lines end where the next glyph stands apart. The order is that of the file.

use hayro_interpret::kurbo::{Point, Vec2};

/// A glyph in its place.
pub(crate) struct Glyph<'a> {
    pub(crate) start: Point,
    /// Vector to the place of the next glyph.
    pub(crate) advance: Vec2,
    /// Size of the font.
    pub(crate) size: f64,
    pub(crate) text: &'a str,
}

/// A line of a page.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) text: String,
    /// Size of the font of the line's first glyph.
    pub(crate) size: f64,
    /// Flag of a line that stands apart from the one before.
    pub(crate) apart: bool,
}

/// Gap that is a blank, in sizes of the font. Blanks of most fonts are a quarter wide; kerning is below a tenth.
const BLANK: f64 = 0.16;
/// Step aside that ends a line: more than a footnote's mark is raised.
const OFF_LINE: f64 = 0.5;
/// Step back that ends a line: more than an accent is set back.
const BACK: f64 = 0.8;
/// Distance of lines from which on they stand apart.
const APART: f64 = 1.7;
/// Least cosine of the directions of two glyphs of a line.
const SAME_DIRECTION: f64 = 0.9;

/// End of the glyph before.
struct Pen {
    at: Point,
    /// Direction of the text, of length 1.
    direction: Vec2,
    size: f64,
}

/// Lines of a page so far.
#[derive(Default)]
pub(crate) struct Layout {
    lines: Vec<Line>,
    pen: Option<Pen>,
}

impl Layout {
    /// The lines of the page; the next page begins.
    pub(crate) fn take(&mut self) -> Vec<Line> {
        self.pen = None;
        let mut lines = std::mem::take(&mut self.lines);
        for line in &mut lines {
            let kept = line.text.trim_end().len();
            line.text.truncate(kept);
        }
        lines.retain(|line| !line.text.is_empty());
        lines
    }

    pub(crate) fn add(&mut self, glyph: &Glyph<'_>) {
        let numbers = [
            glyph.start.x,
            glyph.start.y,
            glyph.advance.x,
            glyph.advance.y,
            glyph.size,
        ];
        if !numbers.iter().all(|number| number.is_finite()) {
            return;
        }
        let length = glyph.advance.hypot();
        let before = self.pen.take();
        let direction = match (length > 0.0, &before) {
            (true, _) => glyph.advance / length,
            (false, Some(pen)) => pen.direction,
            (false, None) => Vec2::new(1.0, 0.0),
        };
        match before {
            None => self.begin(glyph, true),
            Some(pen) => self.go_on(glyph, &pen, direction),
        }
        if let Some(line) = self.lines.last_mut() {
            push(&mut line.text, glyph.text);
        }
        self.pen = Some(Pen {
            at: glyph.start + glyph.advance,
            direction,
            size: glyph.size,
        });
    }

    /// Push a blank, or begin another line, where the glyph stands apart.
    fn go_on(&mut self, glyph: &Glyph<'_>, pen: &Pen, direction: Vec2) {
        let step = glyph.start - pen.at;
        let size = pen.size.max(glyph.size);
        let ahead = step.dot(pen.direction);
        let aside = step.cross(pen.direction).abs();
        let turned = direction.dot(pen.direction) < SAME_DIRECTION;
        if turned || aside > OFF_LINE * size || ahead < -BACK * size {
            self.begin(glyph, turned || aside > APART * size);
        } else if ahead > BLANK * size
            && let Some(line) = self.lines.last_mut()
        {
            push(&mut line.text, " ");
        }
    }

    fn begin(&mut self, glyph: &Glyph<'_>, apart: bool) {
        // A line of blanks only leaves its place to this one.
        let blank = self.lines.pop_if(|line| line.text.is_empty());
        self.lines.push(Line {
            text: String::new(),
            size: glyph.size,
            apart: apart || blank.is_some_and(|line| line.apart),
        });
    }
}

/// Add the text of a glyph: ligatures as their letters, any white space as one blank, nothing that is not seen.
fn push(line: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '\u{FB00}' => line.push_str("ff"),
            '\u{FB01}' => line.push_str("fi"),
            '\u{FB02}' => line.push_str("fl"),
            '\u{FB03}' => line.push_str("ffi"),
            '\u{FB04}' => line.push_str("ffl"),
            '\u{FB05}' | '\u{FB06}' => line.push_str("st"),
            // A soft hyphen is seen at the end of a line, where it is a hyphen.
            '\u{AD}' => line.push('-'),
            '\u{200B}'..='\u{200F}' | '\u{2060}' | '\u{FEFF}' => {}
            blank if blank.is_whitespace() => {
                if !line.is_empty() && !line.ends_with(' ') {
                    line.push(' ');
                }
            }
            control if control.is_control() => {}
            other => line.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of glyphs that are each half as wide as their size, from these places.
    fn lines(runs: &[(f64, f64, f64, &str)]) -> Vec<Line> {
        let mut layout = Layout::default();
        for (x, y, size, text) in runs {
            for (place, character) in text.chars().enumerate() {
                layout.add(&Glyph {
                    start: Point::new(x + place as f64 * size / 2.0, *y),
                    advance: Vec2::new(size / 2.0, 0.0),
                    size: *size,
                    text: &character.to_string(),
                });
            }
        }
        layout.take()
    }

    fn texts(runs: &[(f64, f64, f64, &str)]) -> Vec<String> {
        lines(runs).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn gaps_are_blanks_and_kerning_is_none() {
        let runs = [
            (0.0, 0.0, 10.0, "ab"),
            (10.5, 0.0, 10.0, "c"),
            (18.0, 0.0, 10.0, "d"),
        ];
        assert_eq!(texts(&runs), ["abc d"]);
        // A raised mark stays on its line; an accent is set back a little.
        assert_eq!(
            texts(&[(0.0, 0.0, 10.0, "ab"), (10.0, 4.0, 6.0, "1")]),
            ["ab1"]
        );
        assert_eq!(
            texts(&[(0.0, 0.0, 10.0, "e"), (1.0, 0.0, 10.0, "\u{301}")]),
            ["e\u{301}"]
        );
    }

    #[test]
    fn lines_and_paragraphs_are_told_by_their_distance() {
        let found = lines(&[
            (0.0, 100.0, 10.0, "one"),
            (0.0, 88.0, 10.0, "two"),
            (0.0, 60.0, 10.0, "three"),
        ]);
        let apart: Vec<bool> = found.iter().map(|line| line.apart).collect();
        assert_eq!(apart, [true, false, true]);
        assert_eq!(
            texts(&[(50.0, 0.0, 10.0, "later"), (0.0, 0.0, 10.0, "first")]).len(),
            2
        );
    }

    #[test]
    fn ligatures_are_letters_and_what_is_not_seen_is_left_out() {
        assert_eq!(
            texts(&[(0.0, 0.0, 10.0, "o\u{FB03}ce\u{0}\u{200B}")]),
            ["office"]
        );
        assert_eq!(texts(&[(f64::NAN, 0.0, 10.0, "x")]), Vec::<String>::new());
    }
}
