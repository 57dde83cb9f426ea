//! Claims of declared tools: a text in which `{x}` stands for a property of the arguments.

use super::{BadClaim, Claim, Mode, Name, split};
use crate::limits::CallLimits;
use serde_json::Value;
use windlass_args::template::{TemplatePart, parts, properties};

/// A claim with places for arguments, as in `write service:{service}`.
///
/// `{x}` alone between two `/` takes a path: its own levels become levels, `.` and empty ones go, `..` is followed,
/// and nothing may lead above the template's own part. So `file:/{path}` of `./src/a.rs` is `file:/src/a.rs`, and of
/// `.` it is `file:`. Inside a level `{x}` stays within it: a `/` of the value is written `%2F`, a `%` `%25`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimTemplate {
    mode: Mode,
    levels: Vec<Vec<TemplatePart>>,
    text: String,
}

/// Why arguments give no claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadArgs {
    /// A required argument is missing.
    #[error("the claim `{template}` needs the argument `{property}`: give it")]
    Missing {
        /// The claim as declared.
        template: String,
        /// The missing property.
        property: String,
    },
    /// A list or an object names nothing.
    #[error(
        "the claim `{template}` takes a text, a number or a boolean from `{property}`, not a list or an object: give one"
    )]
    NotScalar {
        /// The claim as declared.
        template: String,
        /// The property.
        property: String,
    },
    /// `..` would claim something outside the declaration.
    #[error("`{property}` leads out of where it begins: give a path without `..` (claim `{template}`)")]
    LeadsOut {
        /// The claim as declared.
        template: String,
        /// The property.
        property: String,
    },
    /// The resulting name is invalid.
    #[error("the claim `{template}` with these arguments is not one")]
    Bad {
        /// The claim as declared.
        template: String,
        /// The mistake.
        #[source]
        problem: BadClaim,
    },
}

impl ClaimTemplate {
    /// Parses a declared claim. Text in braces that cannot be a property's name is literal.
    pub fn parse(text: &str, limits: &CallLimits) -> Result<ClaimTemplate, BadClaim> {
        let (mode, name) = split(text)?;
        let levels: Vec<Vec<TemplatePart>> =
            name.map(|name| name.split('/').map(parts).collect()).unwrap_or_default();
        let template = ClaimTemplate { mode, levels, text: text.to_string() };
        // With every place filled by a plain word, any mistake is the declaration's.
        let filled =
            template.levels.iter().map(|level| level.iter().map(TemplatePart::sample).collect::<String>());
        let filled: Vec<String> = filled.collect();
        if !filled.is_empty() {
            Name::parse(&filled.join("/"), limits)?;
        }
        Ok(template)
    }

    /// The properties it takes from the arguments.
    pub fn properties(&self) -> impl Iterator<Item = &str> {
        properties(self.levels.iter().flatten())
    }

    /// The claim of a call with these arguments.
    pub fn claim(&self, args: &Value, limits: &CallLimits) -> Result<Claim, BadArgs> {
        let mut levels: Vec<String> = Vec::with_capacity(self.levels.len());
        for level in &self.levels {
            match level.as_slice() {
                [TemplatePart::Property(property)] => self.path(property, args, &mut levels)?,
                parts => {
                    let level: Result<String, BadArgs> =
                        parts.iter().map(|part| self.inside(part, args)).collect();
                    levels.push(level?);
                }
            }
        }
        if self.levels.is_empty() {
            return Ok(Claim { mode: self.mode, name: Name::SESSION });
        }
        let name = Name::parse(&levels.join("/"), limits)
            .map_err(|problem| BadArgs::Bad { template: self.text.clone(), problem })?;
        Ok(Claim { mode: self.mode, name })
    }

    /// Adds the levels of a path.
    fn path(&self, property: &str, args: &Value, levels: &mut Vec<String>) -> Result<(), BadArgs> {
        let (value, own) = (self.value(property, args)?, levels.len());
        for level in value.split('/') {
            match level {
                "" | "." => {}
                ".." if levels.len() > own => drop(levels.pop()),
                ".." => {
                    let (template, property) = (self.text.clone(), property.to_string());
                    return Err(BadArgs::LeadsOut { template, property });
                }
                level => levels.push(level.to_string()),
            }
        }
        Ok(())
    }

    /// The text of a part that stays within its level.
    fn inside(&self, part: &TemplatePart, args: &Value) -> Result<String, BadArgs> {
        Ok(match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Property(name) => self.value(name, args)?.replace('%', "%25").replace('/', "%2F"),
        })
    }

    fn value(&self, property: &str, args: &Value) -> Result<String, BadArgs> {
        let (template, property_named) = (|| self.text.clone(), || property.to_string());
        match args.get(property) {
            None | Some(Value::Null) => {
                Err(BadArgs::Missing { template: template(), property: property_named() })
            }
            Some(Value::Array(_) | Value::Object(_)) => {
                Err(BadArgs::NotScalar { template: template(), property: property_named() })
            }
            Some(Value::String(text)) => Ok(text.clone()),
            Some(scalar @ (Value::Bool(_) | Value::Number(_))) => Ok(scalar.to_string()),
        }
    }
}
