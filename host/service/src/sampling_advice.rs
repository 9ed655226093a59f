//! Sampling parameters that are within their bounds and do not go together: they are honoured, and the caller is told
//! what it may not have meant.

use crate::request::RequestFields;

/// Smallest part of the probability that leaves a choice.
const LEAST_TOP_P: f64 = 0.01;

/// Advice on a request whose parameters contradict each other, in ASCII.
pub fn sampling_advice(fields: &RequestFields) -> Option<&'static str> {
    let hot = fields
        .temperature
        .is_some_and(|temperature| temperature > 0.0);
    let cold = fields.temperature == Some(0.0);
    let several = fields.n.is_some_and(|n| n > 1) || fields.best_of.is_some_and(|best| best > 1);
    let filtered = fields.top_p.is_some_and(|top_p| top_p < 1.0)
        || fields.min_p.is_some_and(|min_p| min_p > 0.0)
        || fields.top_k.is_some_and(|top_k| top_k > 1);
    if hot && fields.top_k == Some(1) {
        Some("top_k is 1, which leaves one token to choose from: temperature has no effect")
    } else if hot && fields.top_p.is_some_and(|top_p| top_p <= LEAST_TOP_P) {
        Some(
            "top_p leaves hardly more than one token to choose from: temperature has little effect",
        )
    } else if hot && fields.min_p.is_some_and(|min_p| min_p >= 1.0) {
        Some("min_p is 1, which leaves the likeliest token only: temperature has no effect")
    } else if cold && several && fields.beams.is_none() {
        Some("temperature is 0: all choices are the same")
    } else if cold && filtered {
        Some(
            "temperature is 0, which takes the likeliest token: top_p, top_k and min_p have no effect",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_f5_parameters_that_cancel_each_other_are_told() {
        let advised = |temperature: Option<f64>, change: fn(&mut RequestFields)| {
            let mut fields = RequestFields {
                temperature,
                ..RequestFields::default()
            };
            change(&mut fields);
            sampling_advice(&fields)
        };
        let hot = Some(1.5);
        for (temperature, change, word) in [
            (
                hot,
                (|f| f.top_k = Some(1)) as fn(&mut RequestFields),
                "top_k",
            ),
            (hot, |f| f.top_p = Some(0.01), "top_p"),
            (hot, |f| f.min_p = Some(1.0), "min_p"),
            (Some(0.0), |f| f.n = Some(2), "choices"),
            (Some(0.0), |f| f.top_p = Some(0.5), "likeliest"),
        ] {
            let advice = advised(temperature, change).expect(word);
            assert!(advice.contains(word) && advice.is_ascii(), "{advice}");
        }
        for (temperature, change) in [
            (hot, (|_| ()) as fn(&mut RequestFields)),
            (None, |f| f.top_k = Some(1)),
            (hot, |f| f.top_p = Some(0.9)),
            (Some(0.0), |f| f.top_p = Some(1.0)),
            (Some(0.0), |f| f.top_k = Some(0)),
            (Some(0.0), |f| f.n = Some(1)),
        ] {
            assert_eq!(advised(temperature, change), None);
        }
    }
}
