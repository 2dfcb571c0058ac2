//! Medians, spreads, percentiles and ratios.

/// The middle of `values`, or the mean of the two in the middle; 0 without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// The least and the greatest of `values`; zeros without values.
pub fn spread(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().min_by(f64::total_cmp).unwrap_or_default();
    let greatest = values.iter().copied().max_by(f64::total_cmp).unwrap_or_default();
    (least, greatest)
}

/// The value that `percent` of the sorted `values` do not exceed; `None` without values.
pub fn percentile(sorted: &[u64], percent: f64) -> Option<u64> {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// How many times better `ours` is than `theirs`: above 1 is better, whether more or less is wanted.
pub fn ratio(ours: f64, theirs: f64, less_is_better: bool) -> Option<f64> {
    let (over, under) = if less_is_better { (theirs, ours) } else { (ours, theirs) };
    (over > 0.0 && under > 0.0).then(|| over / under)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (1.0, 3.0));
        assert_eq!(spread(&[]), (0.0, 0.0));
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&values, 50.0), Some(50));
        assert_eq!(percentile(&values, 99.0), Some(99));
        assert_eq!(percentile(&values, 100.0), Some(100));
        assert_eq!(percentile(&[7], 50.0), Some(7));
        assert_eq!(percentile(&[7], 0.0), Some(7));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn a_ratio_above_one_is_better() {
        assert_eq!(ratio(20.0, 10.0, false), Some(2.0));
        assert_eq!(ratio(20.0, 10.0, true), Some(0.5));
        assert_eq!(ratio(1.0, 0.0, false), None);
        assert_eq!(ratio(0.0, 1.0, true), None);
    }
}
