//! `strftime` for a day without a time: templates print dates.
//!
//! The calendar is that of the crate `time`. Its own `strftime` formats are not used: templates were tested with
//! Python's, which keeps a code that it does not know as it stands, has `%f`, and writes nothing for the time zone
//! of a date without one; `time` refuses all three.

use time::{Date, Month};

/// A day of the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Day(Date);

impl Day {
    /// Read `YYYY-MM-DD`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-');
        let mut next = |digits: usize| {
            let part = parts.next()?;
            let fits = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
            fits.then(|| part.parse::<u16>().ok()).flatten()
        };
        let year = i32::from(next(4)?);
        let month = Month::try_from(u8::try_from(next(2)?).ok()?).ok()?;
        let day = u8::try_from(next(2)?).ok()?;
        Date::from_calendar_date(year, month, day).ok().map(Self)
    }

    /// Write the day as `format` asks. Times of the day are midnight; what is not known is left
    /// as it stands.
    pub(crate) fn format(self, format: &str) -> String {
        let mut text = String::new();
        let mut characters = format.chars();
        while let Some(character) = characters.next() {
            if character != '%' {
                text.push(character);
                continue;
            }
            let mut code = characters.next().unwrap_or('%');
            let unpadded = code == '-';
            if unpadded {
                code = characters.next().unwrap_or('-');
            }
            match self.field(code) {
                Some(field) if unpadded => match field.trim_start_matches('0') {
                    "" => text.push('0'),
                    digits => text.push_str(digits),
                },
                Some(field) => text.push_str(&field),
                None => text.extend(['%', code]),
            }
        }
        text
    }

    fn field(self, code: char) -> Option<String> {
        let (year, month, day) = (self.0.year(), u8::from(self.0.month()), self.0.day());
        let month_name = self.0.month().to_string();
        let weekday = self.0.weekday();
        Some(match code {
            'Y' => format!("{year:04}"),
            'y' => format!("{:02}", year % 100),
            'm' => format!("{month:02}"),
            'd' => format!("{day:02}"),
            'e' => format!("{day:2}"),
            'B' => month_name,
            'b' | 'h' => month_name[..3].to_owned(),
            'A' => weekday.to_string(),
            'a' => weekday.to_string()[..3].to_owned(),
            'j' => format!("{:03}", self.0.ordinal()),
            'w' => weekday.number_days_from_sunday().to_string(),
            'H' | 'M' | 'S' => "00".to_owned(),
            'I' => "12".to_owned(),
            'p' => "AM".to_owned(),
            'f' => "000000".to_owned(),
            'F' => format!("{year:04}-{month:02}-{day:02}"),
            'T' | 'X' => "00:00:00".to_owned(),
            'D' | 'x' => format!("{month:02}/{day:02}/{:02}", year % 100),
            'R' => "00:00".to_owned(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            'Z' | 'z' => String::new(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Day;

    #[test]
    fn days_are_written_as_python_writes_them() {
        let day = Day::parse("2026-03-01").unwrap();
        for (format, expected) in [
            ("%d %b %Y", "01 Mar 2026"),
            ("%B %-d, %Y", "March 1, 2026"),
            ("%Y-%m-%d", "2026-03-01"),
            ("%A, %d/%m/%y", "Sunday, 01/03/26"),
            ("%H:%M:%S", "00:00:00"),
            ("day %j", "day 060"),
            ("100%%", "100%"),
            ("%Q", "%Q"),
        ] {
            assert_eq!(day.format(format), expected);
        }
        assert_eq!(Day::parse("2024-12-31").unwrap().format("%j %a"), "366 Tue");
    }

    #[test]
    fn other_texts_are_no_days() {
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-00-10",
            "2026-02-31",
            "2025-02-29",
            "26-01-01",
            "2026-01-0x",
        ] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }
}
