//! `add`, `subtract`, `multiply`, `divide`: integers exactly, all else as 64-bit floats.
//!
//! An inexpressible result (too large, or divided by zero) is an error that says so, never a wrong number.

use super::HARMLESS;
use serde::Deserialize;
use serde_json::{Number, Value, json};
use windlass::tool::ToolSource;
use windlass::{EffectClass, Flags, ToolError, ToolSpec};

pub(super) fn add() -> ToolSpec {
    spec("add", "Add", "Adds two numbers: a + b. Integers are added exactly.")
}

pub(super) fn subtract() -> ToolSpec {
    spec("subtract", "Subtract", "Subtracts one number from another: a - b. Integers are subtracted exactly.")
}

pub(super) fn multiply() -> ToolSpec {
    spec("multiply", "Multiply", "Multiplies two numbers: a × b. Integers are multiplied exactly.")
}

pub(super) fn divide() -> ToolSpec {
    let description = "Divides one number by another: a / b. Exact if both are integers and nothing remains. \
        Dividing by zero is an error.";
    spec("divide", "Divide", description)
}

pub(super) fn run_add(args: Value) -> Result<Value, ToolError> {
    compute(args, |a, b| a.checked_add(b), |a, b| a + b)
}

pub(super) fn run_subtract(args: Value) -> Result<Value, ToolError> {
    compute(args, |a, b| a.checked_sub(b), |a, b| a - b)
}

pub(super) fn run_multiply(args: Value) -> Result<Value, ToolError> {
    compute(args, |a, b| a.checked_mul(b), |a, b| a * b)
}

pub(super) fn run_divide(args: Value) -> Result<Value, ToolError> {
    let ArithmeticArgs { a, b } = super::parse(args)?;
    let result = match (whole(&a), whole(&b)) {
        (_, Some(0)) => return Err(by_zero()),
        (Some(a), Some(b)) if a % b == 0 => from_whole(a / b)?,
        _ => {
            let (a, b) = (float(&a)?, float(&b)?);
            if b == 0.0 {
                return Err(by_zero());
            }
            from_float(a / b)?
        }
    };
    Ok(json!({ "result": result }))
}

fn spec(name: &str, title: &str, description: &str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        title: title.into(),
        description: description.into(),
        input_schema: Some(json!({
            "type": "object",
            "properties": {
                "a": { "type": "number", "description": "The first number." },
                "b": { "type": "number", "description": "The second number." },
            },
            "required": ["a", "b"],
            "additionalProperties": false,
        })),
        output_schema: Some(json!({
            "type": "object",
            "properties": { "result": { "type": "number" } },
            "required": ["result"],
        })),
        class: Some(EffectClass::Read),
        hints: HARMLESS,
        flags: Flags { quick: true, ..Flags::default() },
        source: ToolSource::BuiltIn,
        ..ToolSpec::default()
    }
}

#[derive(Deserialize)]
struct ArithmeticArgs {
    a: Number,
    b: Number,
}

fn compute(
    args: Value,
    of_whole: fn(i128, i128) -> Option<i128>,
    of_floats: fn(f64, f64) -> f64,
) -> Result<Value, ToolError> {
    let ArithmeticArgs { a, b } = super::parse(args)?;
    let result = match (whole(&a), whole(&b)) {
        (Some(a), Some(b)) => from_whole(of_whole(a, b).ok_or_else(too_large)?)?,
        _ => from_float(of_floats(float(&a)?, float(&b)?))?,
    };
    Ok(json!({ "result": result }))
}

fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn float(number: &Number) -> Result<f64, ToolError> {
    number.as_f64().filter(|number| number.is_finite()).ok_or_else(too_large)
}

fn from_whole(number: i128) -> Result<Number, ToolError> {
    let small = i64::try_from(number).map(Number::from);
    small.or_else(|_| u64::try_from(number).map(Number::from)).map_err(|_| too_large())
}

fn from_float(number: f64) -> Result<Number, ToolError> {
    Number::from_f64(number).ok_or_else(too_large)
}

fn by_zero() -> ToolError {
    ToolError::new("division by zero has no result; give another b")
}

fn too_large() -> ToolError {
    ToolError::new(
        "the result is too large: integers are kept exactly up to 64 bits and floats up to about 1.8e308; \
         for an approximate result give a or b with a decimal point, such as 2.0",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    type Run = fn(Value) -> Result<Value, ToolError>;

    #[test]
    fn results() {
        let cases: &[(Run, &str, &str, &str)] = &[
            (run_add, "1", "2", "3"),
            (run_add, "0.5", "1", "1.5"),
            (run_add, "9223372036854775807", "1", "9223372036854775808"),
            (run_add, "18446744073709551615", "1", "too large"),
            (run_add, "18446744073709551615", "1.0", "1.8446744073709552e+19"),
            (run_add, "1e308", "1e308", "too large"),
            (run_subtract, "-9223372036854775808", "1", "too large"),
            (run_subtract, "5", "7", "-2"),
            (run_multiply, "3037000500", "3037000500", "9223372037000250000"),
            (run_multiply, "18446744073709551615", "18446744073709551615", "too large"),
            (run_multiply, "1e200", "1e200", "too large"),
            (run_divide, "7", "2", "3.5"),
            (run_divide, "8", "2", "4"),
            (run_divide, "-9223372036854775808", "-1", "9223372036854775808"),
            (run_divide, "1", "0", "division by zero"),
            (run_divide, "1", "0.0", "division by zero"),
            (run_divide, "0.0", "-0.0", "division by zero"),
            (run_divide, "1e300", "1e-300", "too large"),
        ];
        for (run, a, b, expected) in cases {
            let number = |text: &str| serde_json::from_str::<Value>(text).expect("a number");
            match run(json!({ "a": number(a), "b": number(b) })) {
                Ok(result) => assert_eq!(&result["result"].to_string(), expected, "{a} {b}"),
                Err(error) => assert!(error.message.contains(expected), "{a} {b}: {}", error.message),
            }
        }
    }
}
