//! Formats of the page of metrics: Prometheus' text, and OpenMetrics, which alone has exemplars. The page is made in
//! text with the exemplars of OpenMetrics behind their samples, and becomes one of both.

use http::{HeaderMap, header};

/// Format of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    Text,
    OpenMetrics,
}

const OPEN_METRICS: &str = "application/openmetrics-text";

impl MetricsFormat {
    /// Format that a scrape asks for. OpenMetrics is sent to those only that name it and do not like text better.
    pub(crate) fn wanted(headers: &HeaderMap) -> Self {
        let (mut open, mut text) = (0.0_f32, 0.0_f32);
        let values = headers.get_all(header::ACCEPT).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        for range in values.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let quality = parts.find_map(|part| part.strip_prefix("q="));
            let quality = quality.map_or(Some(1.0), |quality| quality.parse::<f32>().ok());
            let quality = quality.filter(|quality| (0.0..=1.0).contains(quality));
            let liked = match kind {
                OPEN_METRICS => &mut open,
                "text/plain" => &mut text,
                _ => continue,
            };
            *liked = liked.max(quality.unwrap_or(0.0));
        }
        match open > 0.0 && open >= text {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The page in this format.
    pub(crate) fn page(self, made: &str) -> String {
        match self {
            Self::Text => text(made),
            Self::OpenMetrics => open_metrics(made),
        }
    }
}

/// Without exemplars.
fn text(made: &str) -> String {
    let mut page = String::with_capacity(made.len());
    for line in made.lines() {
        page.push_str(without_exemplar(line));
        page.push('\n');
    }
    page
}

/// A family is declared without the end of its samples' names, and the page has a last line.
fn open_metrics(made: &str) -> String {
    let mut page = String::with_capacity(made.len());
    // HELP comes before TYPE, which says how the family is declared.
    let mut help = None;
    for line in made.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
            continue;
        }
        let declared = line.strip_prefix("# TYPE ");
        let Some((name, kind)) = declared.and_then(|rest| rest.split_once(' ')) else {
            page.push_str(line);
            page.push('\n');
            continue;
        };
        let (family, kind) = match (
            kind,
            name.strip_suffix("_total"),
            name.strip_suffix("_info"),
        ) {
            ("counter", Some(family), _) => (family, kind),
            ("counter", None, _) => (name, "unknown"),
            ("gauge", _, Some(family)) => (family, "info"),
            _ => (name, kind),
        };
        if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
            page.push_str(&format!("# HELP {family} {help}\n"));
        }
        page.push_str(&format!("# TYPE {family} {kind}\n"));
    }
    page.push_str("# EOF\n");
    page
}

/// A sample without what stands behind its value. Values of labels may have any character.
fn without_exemplar(line: &str) -> &str {
    if line.starts_with('#') {
        return line;
    }
    let (mut quoted, mut escaped) = (false, false);
    for (place, character) in line.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '#' if !quoted => return line[..place].trim_end(),
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const MADE: &str = "\
# HELP mortise_requests_total Requests answered
# TYPE mortise_requests_total counter
mortise_requests_total{model=\"a # {x} \\\" # b\"} 1
# HELP mortise_build_info The version
# TYPE mortise_build_info gauge
mortise_build_info{version=\"1\"} 1
# HELP mortise_time_seconds A time
# TYPE mortise_time_seconds histogram
mortise_time_seconds_sum 0.5
mortise_time_seconds_count 1
mortise_time_seconds_bucket{le=\"1.0\"} 1 # {trace_id=\"ab\"} 0.5 1700000000.5
mortise_time_seconds_bucket{le=\"+Inf\"} 1
";

    #[test]
    fn text_has_no_exemplars() {
        let page = MetricsFormat::Text.page(MADE);
        let expected = MADE.replace(" # {trace_id=\"ab\"} 0.5 1700000000.5", "");
        assert_eq!(page, expected);
    }

    #[test]
    fn open_metrics_declares_families_by_their_own_names() {
        let page = MetricsFormat::OpenMetrics.page(MADE);
        let expected = MADE
            .replace("# HELP mortise_requests_total", "# HELP mortise_requests")
            .replace("# TYPE mortise_requests_total", "# TYPE mortise_requests")
            .replace("# HELP mortise_build_info", "# HELP mortise_build")
            .replace(
                "# TYPE mortise_build_info gauge",
                "# TYPE mortise_build info",
            );
        assert_eq!(page, expected + "# EOF\n");
    }

    #[test]
    fn a_scrape_gets_what_it_asks_for() {
        let wanted = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(
                header::ACCEPT,
                HeaderValue::from_str(accept).expect("value"),
            );
            MetricsFormat::wanted(&headers)
        };
        assert_eq!(
            MetricsFormat::wanted(&HeaderMap::new()),
            MetricsFormat::Text
        );
        for accept in [
            "application/openmetrics-text",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            // Prometheus 2.42
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        ] {
            assert_eq!(wanted(accept), MetricsFormat::OpenMetrics, "{accept}");
        }
        for accept in [
            "*/*",
            "text/plain",
            "application/openmetrics-text;q=0.1, text/plain;q=0.9",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=x",
            "application/openmetrics-text;q=NaN",
            "application/openmetrics-textual",
        ] {
            assert_eq!(wanted(accept), MetricsFormat::Text, "{accept}");
        }
    }
}
