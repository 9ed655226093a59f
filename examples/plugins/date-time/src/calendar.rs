//! Days of the Gregorian calendar as numbers, by the algorithms of Howard Hinnant
//! (<https://howardhinnant.github.io/date_algorithms.html>).

use std::fmt;

const WEEKDAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// Days in 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// A date that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    year: i64,
    month: i64,
    day: i64,
}

impl Date {
    /// Read `YYYY-MM-DD`; `None` if there is no such date.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-').map(|part| {
            let digits = part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse().ok().filter(|_: &i64| digits)
        });
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        let date = Self { year, month, day };
        // A date that does not exist is another one when it is counted back.
        let exists = (1..=9999).contains(&year) && Self::from_days(date.days()) == date;
        (exists && text.len() == 10).then_some(date)
    }

    /// Days since 1970-01-01.
    pub fn days(self) -> i64 {
        // The year begins in March, so that the leap day is its last.
        let year = if self.month <= 2 {
            self.year - 1
        } else {
            self.year
        };
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month = (self.month + 9) % 12;
        let day_of_year = (153 * month + 2) / 5 + self.day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * ERA_DAYS + day_of_era - 719_468
    }

    /// The date so many days after 1970-01-01.
    pub fn from_days(days: i64) -> Self {
        let days = days + 719_468;
        let era = days.div_euclid(ERA_DAYS);
        let day_of_era = days.rem_euclid(ERA_DAYS);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Self { year, month, day }
    }

    /// In English.
    pub fn weekday(self) -> &'static str {
        WEEKDAYS[self.days().rem_euclid(7) as usize]
    }
}

impl fmt::Display for Date {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:04}-{:02}-{:02}",
            self.year, self.month, self.day
        )
    }
}
