//! `strftime` for a day without a time: what templates print is a date.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A day of the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Day {
    year: u32,
    month: u32,
    day: u32,
}

impl Day {
    /// Read `YYYY-MM-DD`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-');
        let mut next = |digits: usize| {
            let part = parts.next()?;
            let fits = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
            fits.then(|| part.parse::<u32>().ok()).flatten()
        };
        let day = Self {
            year: next(4)?,
            month: next(2)?,
            day: next(2)?,
        };
        ((1..=12).contains(&day.month) && (1..=31).contains(&day.day)).then_some(day)
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
        let month = MONTHS[(self.month - 1) as usize];
        let weekday = WEEKDAYS[self.weekday()];
        Some(match code {
            'Y' => format!("{:04}", self.year),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'B' => month.to_owned(),
            'b' | 'h' => month[..3].to_owned(),
            'A' => weekday.to_owned(),
            'a' => weekday[..3].to_owned(),
            'j' => format!("{:03}", self.day_of_year()),
            'w' => self.weekday().to_string(),
            'H' | 'M' | 'S' => "00".to_owned(),
            'I' => "12".to_owned(),
            'p' => "AM".to_owned(),
            'f' => "000000".to_owned(),
            'F' => format!("{:04}-{:02}-{:02}", self.year, self.month, self.day),
            'T' | 'X' => "00:00:00".to_owned(),
            'D' | 'x' => format!("{:02}/{:02}/{:02}", self.month, self.day, self.year % 100),
            'R' => "00:00".to_owned(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            'Z' | 'z' => String::new(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }

    /// 0 is Sunday. Sakamoto's method.
    fn weekday(self) -> usize {
        const OFFSETS: [u32; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = if self.month < 3 {
            self.year.saturating_sub(1)
        } else {
            self.year
        };
        let offset = OFFSETS[(self.month - 1) as usize];
        ((year + year / 4 + year / 400 + offset + self.day - year / 100) % 7) as usize
    }

    fn day_of_year(self) -> u32 {
        const BEFORE: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let leap = self.year.is_multiple_of(4)
            && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        BEFORE[(self.month - 1) as usize] + self.day + u32::from(leap && self.month > 2)
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
        for text in ["", "2026", "2026-13-01", "2026-00-10", "26-01-01", "2026-01-0x"] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }
}
