//! The header that tells when a model is to be removed (`Sunset`, RFC 8594).

use mortise_service::Service;
use time::Date;
use time::macros::format_description;

const SUNSET: &str = "sunset";

/// The header of an answer of a model, if the model is to be removed on a day.
pub(crate) fn header_of(service: &Service, model: &str) -> Option<(String, String)> {
    let served = service.model(model).ok()?;
    let date = at_midnight(served.listing.deprecation_date.as_deref()?)?;
    Some((SUNSET.to_owned(), date))
}

/// The beginning of a day `YYYY-MM-DD` as HTTP writes times.
fn at_midnight(day: &str) -> Option<String> {
    let date = Date::parse(day, format_description!("[year]-[month]-[day]")).ok()?;
    let written =
        format_description!("[weekday repr:short], [day] [month repr:short] [year] 00:00:00 GMT");
    date.format(written).ok()
}

#[cfg(test)]
mod tests {
    use super::at_midnight;

    #[test]
    fn a_day_is_written_as_http_does() {
        // The example of RFC 9110, 5.6.7, without its time of day.
        assert_eq!(
            at_midnight("1994-11-06").as_deref(),
            Some("Sun, 06 Nov 1994 00:00:00 GMT")
        );
        assert_eq!(at_midnight("1994-13-06"), None);
    }
}
