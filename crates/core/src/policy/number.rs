//! Exact comparison of JSON numbers: an integer is never rounded to be compared with another number.

use serde_json::Number;
use std::cmp::Ordering;

/// The order of two numbers by value; `None` for a number that is neither an integer nor finite.
pub(super) fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(left), None) => integer_with_float(left, right.as_f64()?),
        (None, Some(right)) => integer_with_float(right, left.as_f64()?).map(Ordering::reverse),
        (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn integer_with_float(integer: i128, float: f64) -> Option<Ordering> {
    // Integers of JSON have at most 64 bits: everything beyond 2^65 is above or below all of them.
    const BEYOND: f64 = 36_893_488_147_419_103_232.0;
    if !float.is_finite() {
        return None;
    }
    if float.abs() >= BEYOND {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = float.trunc();
    let rest = if float > whole {
        Ordering::Less
    } else if float < whole {
        Ordering::Greater
    } else {
        Ordering::Equal
    };
    Some(integer.cmp(&(whole as i128)).then(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn numbers_are_compared_by_value_and_never_rounded() {
        let number = |value: Value| value.as_number().cloned().unwrap();
        for (left, right, order) in [
            (json!(1), json!(1.0), Ordering::Equal),
            (json!(-0.0), json!(0), Ordering::Equal),
            (json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992.0), Ordering::Greater),
            (json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992_u64), Ordering::Greater),
            (json!(u64::MAX), json!(18_446_744_073_709_551_616.0), Ordering::Less),
            (json!(i64::MIN), json!(-9_223_372_036_854_775_808.0), Ordering::Equal),
            (json!(i64::MIN), json!(u64::MAX), Ordering::Less),
            (json!(-1), json!(-1.5), Ordering::Greater),
            (json!(1), json!(1.5), Ordering::Less),
            (json!(u64::MAX), json!(1e300), Ordering::Less),
            (json!(i64::MIN), json!(-1e300), Ordering::Greater),
            (json!(0.1), json!(0.2), Ordering::Less),
        ] {
            let (left, right) = (number(left), number(right));
            assert_eq!(compare(&left, &right), Some(order), "{left} {right}");
            assert_eq!(compare(&right, &left), Some(order.reverse()), "{right} {left}");
        }
    }
}
