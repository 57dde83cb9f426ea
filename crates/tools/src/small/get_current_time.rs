//! `get_current_time`: the current time in a zone.

use super::HARMLESS;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::SystemTime;
use windlass::catalog::Deferral;
use windlass::tool::ToolSource;
use windlass::tool::{folded_name, nearest_name};
use windlass::{Cx, EffectClass, Flags, Tool, ToolError, ToolFuture, ToolSpec};

/// The tool, with the clock it reads.
pub(super) struct GetCurrentTime {
    /// The clock.
    pub(super) now: fn() -> SystemTime,
}

impl Tool for GetCurrentTime {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            deferral: Deferral::Never,
            name: "get_current_time".into(),
            title: "Get the current time".into(),
            description: "Returns the current date and time in a time zone (UTC unless given).".into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {
                    "timezone": {
                        "type": "string",
                        "default": "UTC",
                        "description": "An IANA time zone name, such as Europe/Berlin.",
                    },
                    "format": {
                        "enum": ["iso8601", "unix", "human"],
                        "default": "iso8601",
                        "description": "iso8601: 2026-01-31T09:30:00+01:00. unix: seconds since 1970, a number. \
                            human: Saturday, 31 January 2026, 09:30:00 CET.",
                    },
                },
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "current_time": { "type": ["string", "integer"] },
                    "timezone": { "type": "string" },
                },
                "required": ["current_time", "timezone"],
            })),
            class: Some(EffectClass::Read),
            hints: HARMLESS,
            claims: Some(Vec::new()),
            flags: Flags { quick: true, ..Flags::default() },
            source: ToolSource::BuiltIn,
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, _cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let now = Timestamp::try_from((self.now)()).map_err(|_| {
                ToolError::new("The clock of this machine is set to a time for which there is no date.")
            })?;
            Ok(tell(now, args)?.into())
        })
    }
}

#[derive(Deserialize)]
struct CurrentTimeArgs {
    timezone: Option<String>,
    #[serde(default)]
    format: Format,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Iso8601,
    Unix,
    Human,
}

fn tell(now: Timestamp, args: Value) -> Result<Value, ToolError> {
    let CurrentTimeArgs { timezone, format } = super::parse(args)?;
    let zone = find_zone(timezone.as_deref().unwrap_or("UTC"))?;
    let name = zone.iana_name().unwrap_or("UTC").to_string();
    let local = Zoned::new(now, zone);
    let current_time = match format {
        Format::Iso8601 => json!(local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()),
        Format::Unix => json!(now.as_second()),
        Format::Human => json!(local.strftime("%A, %-d %B %Y, %H:%M:%S %Z").to_string()),
    };
    Ok(json!({ "current_time": current_time, "timezone": name }))
}

/// The zone from the database in the binary: the system's differs from machine to machine.
fn find_zone(asked: &str) -> Result<TimeZone, ToolError> {
    let zones = TimeZoneDatabase::bundled();
    zones.get(asked).map_err(|_| {
        let names: Vec<String> = zones.available().map(|name| name.to_string()).collect();
        let meant = match nearest_zone(asked, &names) {
            Some(name) => format!("did you mean {name:?}?"),
            None => "use an IANA name, such as \"Europe/Berlin\" or \"UTC\"".to_string(),
        };
        ToolError::new(format!("there is no time zone {asked:?}; {meant}"))
    })
}

/// The most likely zone: the one of that city, else the most similar name.
fn nearest_zone<'a>(asked: &str, names: &'a [String]) -> Option<&'a str> {
    let folded = |text: &str| folded_name(text).replace(' ', "_");
    let city = folded(asked.rsplit('/').next().unwrap_or(asked));
    let in_city = names.iter().find(|name| name.rsplit('/').next().is_some_and(|last| folded(last) == city));
    in_city.map(String::as_str).or_else(|| nearest_name(&folded(asked), names.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_noon(args: Value) -> Result<Value, String> {
        let noon: Timestamp = "2026-07-01T12:00:00Z".parse().expect("a time");
        tell(noon, args).map_err(|error| error.message)
    }

    #[test]
    fn the_zone_and_the_format_are_honoured() {
        let cases = [
            (json!({}), json!("2026-07-01T12:00:00+00:00"), "UTC"),
            (json!({ "timezone": "Europe/Berlin" }), json!("2026-07-01T14:00:00+02:00"), "Europe/Berlin"),
            (json!({ "timezone": "asia/kolkata" }), json!("2026-07-01T17:30:00+05:30"), "Asia/Kolkata"),
            (json!({ "timezone": "Asia/Tokyo", "format": "unix" }), json!(1_782_907_200), "Asia/Tokyo"),
            (
                json!({ "timezone": "America/New_York", "format": "human" }),
                json!("Wednesday, 1 July 2026, 08:00:00 EDT"),
                "America/New_York",
            ),
        ];
        for (args, current_time, timezone) in cases {
            let expected = json!({ "current_time": current_time, "timezone": timezone });
            assert_eq!(at_noon(args.clone()), Ok(expected), "{args}");
        }
    }

    #[test]
    fn an_unknown_zone_names_the_nearest() {
        for (asked, meant) in [
            ("Europe/Berlinn", "Europe/Berlin"),
            ("berlin", "Europe/Berlin"),
            ("US/New York", "America/New_York"),
        ] {
            let message = at_noon(json!({ "timezone": asked })).expect_err(asked);
            assert_eq!(message, format!("there is no time zone {asked:?}; did you mean {meant:?}?"));
        }
        let message = at_noon(json!({ "timezone": "the moon, dark side" })).expect_err("no zone");
        assert!(message.contains("use an IANA name"), "{message}");
    }
}
