//! `get_weather`, `get_forecast`: sample data, for trying out. The same place always has the same weather.

use serde::Deserialize;
use serde_json::{Value, json};
use windlass::tool::{Hints, ToolSource};
use windlass::{EffectClass, Flags, ToolError, ToolSpec};

/// A longer forecast is a guess, even as a sample.
const DAYS_MAX: u64 = 14;

pub(super) fn weather() -> ToolSpec {
    let about = "Returns the weather at a place. Sample data for trying things out, not the real weather.";
    ToolSpec {
        output_schema: Some(json!({
            "type": "object",
            "properties": {
                "location": { "type": "string" },
                "temperature": { "type": "number" },
                "units": { "type": "string" },
                "conditions": { "type": "string" },
                "sample": { "const": true },
            },
            "required": ["location", "temperature", "units", "conditions", "sample"],
        })),
        ..spec("get_weather", "Get the weather", about, json!({}))
    }
}

pub(super) fn forecast() -> ToolSpec {
    let days = json!({ "days": {
        "type": "integer", "minimum": 1, "maximum": DAYS_MAX, "default": 3, "description": "How many days.",
    } });
    let about =
        "Returns a weather forecast for a place. Sample data for trying things out, not the real weather.";
    ToolSpec {
        output_schema: Some(json!({
            "type": "object",
            "properties": {
                "location": { "type": "string" },
                "units": { "type": "string" },
                "days": { "type": "array", "items": { "type": "object" } },
                "sample": { "const": true },
            },
            "required": ["location", "units", "days", "sample"],
        })),
        ..spec("get_forecast", "Get a forecast", about, days)
    }
}

fn spec(name: &str, title: &str, description: &str, more: Value) -> ToolSpec {
    let mut properties = json!({
        "location": { "type": "string", "minLength": 1, "maxLength": 200, "description": "A place, such as Berlin." },
        "units": { "enum": ["celsius", "fahrenheit"], "default": "celsius", "description": "The unit of temperatures." },
    });
    if let (Some(properties), Value::Object(more)) = (properties.as_object_mut(), more) {
        properties.extend(more);
    }
    ToolSpec {
        name: name.into(),
        title: title.into(),
        description: description.into(),
        input_schema: Some(json!({
            "type": "object",
            "properties": properties,
            "required": ["location"],
            "additionalProperties": false,
        })),
        class: Some(EffectClass::Read),
        hints: Hints { read_only: Some(true), open_world: Some(false), ..Hints::default() },
        flags: Flags { quick: true, ..Flags::default() },
        claims: Some(Vec::new()),
        category: "demo".into(),
        source: ToolSource::BuiltIn,
        ..ToolSpec::default()
    }
}

#[derive(Deserialize)]
struct WeatherArgs {
    location: String,
    #[serde(default)]
    units: TemperatureUnit,
    #[serde(default = "three")]
    days: u64,
}

fn three() -> u64 {
    3
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TemperatureUnit {
    #[default]
    Celsius,
    Fahrenheit,
}

impl TemperatureUnit {
    fn name(self) -> &'static str {
        match self {
            TemperatureUnit::Celsius => "celsius",
            TemperatureUnit::Fahrenheit => "fahrenheit",
        }
    }

    fn of_celsius(self, celsius: i64) -> i64 {
        match self {
            TemperatureUnit::Celsius => celsius,
            TemperatureUnit::Fahrenheit => celsius * 9 / 5 + 32,
        }
    }
}

const CONDITIONS: [&str; 6] = ["sunny", "cloudy", "light rain", "windy", "foggy", "clear"];

/// A number that depends on the place and the day only.
fn chance(location: &str, day: u64) -> u64 {
    location
        .to_lowercase()
        .bytes()
        .chain(day.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn celsius(location: &str, day: u64) -> i64 {
    (chance(location, day) >> 8) as i64 % 25 + 4
}

fn conditions(location: &str, day: u64) -> &'static str {
    CONDITIONS[(chance(location, day) >> 32) as usize % CONDITIONS.len()]
}

pub(super) fn run_weather(args: Value) -> Result<Value, ToolError> {
    let WeatherArgs { location, units, .. } = super::parse(args)?;
    let temperature = units.of_celsius(celsius(&location, 0));
    let conditions = conditions(&location, 0);
    Ok(json!({
        "location": location, "temperature": temperature, "units": units.name(), "conditions": conditions, "sample": true,
    }))
}

pub(super) fn run_forecast(args: Value) -> Result<Value, ToolError> {
    let WeatherArgs { location, units, days } = super::parse(args)?;
    let day = |day: u64| {
        let low = celsius(&location, day);
        let high = low + (chance(&location, day) >> 16) as i64 % 8 + 1;
        json!({
            "day": day, "low": units.of_celsius(low), "high": units.of_celsius(high), "conditions": conditions(&location, day),
        })
    };
    let days: Vec<Value> = (1..=days.min(DAYS_MAX)).map(day).collect();
    Ok(json!({ "location": location, "units": units.name(), "days": days, "sample": true }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weather_is_a_sample_and_the_same_each_time() {
        let of = |args: Value| run_weather(args).expect("weather");
        let berlin = of(json!({ "location": "Berlin" }));
        assert_eq!(berlin, of(json!({ "location": "Berlin" })));
        assert_eq!(berlin["sample"], true);
        let celsius = berlin["temperature"].as_i64().expect("a number");
        assert!((4..29).contains(&celsius));
        let warm = of(json!({ "location": "Berlin", "units": "fahrenheit" }));
        assert_eq!(warm["temperature"], celsius * 9 / 5 + 32);
        let days = run_forecast(json!({ "location": "Oslo", "days": 5 })).expect("a forecast");
        assert_eq!(days["days"].as_array().map(Vec::len), Some(5));
        assert!(days["days"][0]["low"].as_i64() < days["days"][0]["high"].as_i64());
    }
}
