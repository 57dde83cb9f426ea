//! Names of secrets: by themselves, or because a schema declares them so.

use serde_json::Value;
use std::collections::BTreeSet;

/// A name that contains one of these is a secret's, whatever separates its letters.
const STEMS: [&str; 20] = [
    "password",
    "passwd",
    "passwort",
    "kennwort",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "sshkey",
    "authorization",
    "authentication",
    "credential",
    "bearer",
    "cookie",
    "connectionstring",
];

/// Words that name a secret only as whole words: `db_pwd`, not `cupwdrawer`.
const WORDS: [&str; 10] = ["pwd", "pass", "auth", "otp", "totp", "pin", "cvv", "cvc", "jwt", "ssn"];

/// Words that make a name with a stem a count.
const COUNTS: [&str; 9] = ["tokens", "max", "min", "count", "limit", "budget", "total", "used", "per"];

/// Texts in the description of a value that mark it as a secret.
const DESCRIBED: [&str; 12] = [
    "password",
    "passphrase",
    "passcode",
    "secret",
    "api key",
    "api-key",
    "access token",
    "auth token",
    "bearer token",
    "private key",
    "credential",
    "confidential",
];

/// Keywords of a schema whose subschemas apply to the same value, or to all values inside it.
const SAME_VALUE: [&str; 12] = [
    "allOf",
    "anyOf",
    "oneOf",
    "then",
    "else",
    "items",
    "prefixItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "patternProperties",
];

/// The maximum number of places of a schema that are checked. Unchecked ones count as secret.
const LOOKS_MAX: u32 = 100_000;

/// Whether a name alone says that its value is a secret.
pub fn is_secret_name(name: &str) -> bool {
    let letters = letters(name);
    let has = |stem: &&str| match stem {
        // A tokenizer is none.
        &"token" => letters.replace("tokeniz", "").contains("token"),
        stem => letters.contains(*stem),
    };
    STEMS.iter().any(has) || words(name).iter().any(|word| WORDS.contains(&word.as_str()))
}

/// Whether a number of this name counts something: `max_tokens`.
pub(super) fn is_count(name: &str) -> bool {
    words(name).iter().any(|word| COUNTS.contains(&word.as_str()))
}

/// The names of a tool's arguments whose values are secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretNames {
    /// Those that its schema declares, reduced to letters and digits.
    declared: BTreeSet<Box<str>>,
    /// Whether the schema declares arguments secret that it does not name.
    all: bool,
}

impl SecretNames {
    /// The names that an input schema declares, in addition to names that are secret by themselves.
    pub fn of(schema: Option<&Value>) -> SecretNames {
        let mut names = SecretNames::default();
        if let Some(schema) = schema {
            let mut look = SecretSearch { root: schema, seen: Vec::new(), left: LOOKS_MAX };
            names.all = look.is_declared(schema);
            names.collect(&mut look, schema);
        }
        names
    }

    /// Whether the value of this name is a secret.
    pub fn has(&self, name: &str) -> bool {
        self.all
            || is_secret_name(name)
            || (!self.declared.is_empty() && self.declared.contains(&*letters(name)))
    }

    /// Whether a text that cannot be parsed might hold a secret.
    pub(super) fn may_be_in(&self, text: &str) -> bool {
        let letters = letters(text);
        let is_in = |stem: &str| letters.contains(stem);
        // Its letters may be escaped.
        self.all
            || text.contains("\\u")
            || STEMS.iter().any(|stem| is_in(stem))
            || self.declared.iter().any(|name| is_in(name))
            || words(text).iter().any(|word| WORDS.contains(&word.as_str()))
    }

    /// Adds the names of all properties declared secret, at any depth. The depth of a schema is bounded when
    /// its tool is registered.
    fn collect(&mut self, look: &mut SecretSearch<'_>, schema: &Value) {
        match schema {
            Value::Object(fields) => {
                let properties = fields.get("properties").and_then(Value::as_object);
                for (name, property) in properties.into_iter().flatten() {
                    look.seen.clear();
                    if look.is_declared(property) {
                        self.declared.insert(letters(name).into());
                    }
                }
                fields.values().for_each(|field| self.collect(look, field));
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(look, item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Checks whether schemas declare their values to be secret.
struct SecretSearch<'a> {
    root: &'a Value,
    /// The references followed from the current property.
    seen: Vec<String>,
    /// How many places may still be checked.
    left: u32,
}

impl SecretSearch<'_> {
    fn is_declared(&mut self, schema: &Value) -> bool {
        let Some(fields) = schema.as_object() else { return false };
        let Some(left) = self.left.checked_sub(1) else { return true };
        self.left = left;
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        if fields.get("writeOnly") == Some(&Value::Bool(true)) || text("format") == Some("password") {
            return true;
        }
        let is_said = |name: &str| {
            let said = text(name).map(str::to_lowercase);
            said.is_some_and(|said| DESCRIBED.iter().any(|word| said.contains(word)))
        };
        // The description of an object is about its content, which is checked by itself.
        if !fields.contains_key("properties") && (is_said("description") || is_said("title")) {
            return true;
        }
        let referred = ["$ref", "$dynamicRef"].into_iter().filter_map(text);
        if referred.into_iter().any(|reference| self.refers(reference)) {
            return true;
        }
        SAME_VALUE.iter().any(|place| match fields.get(*place) {
            None => false,
            Some(Value::Array(schemas)) => schemas.iter().any(|schema| self.is_declared(schema)),
            Some(Value::Object(schemas)) if *place == "patternProperties" => {
                schemas.values().any(|schema| self.is_declared(schema))
            }
            Some(schema) => self.is_declared(schema),
        })
    }

    /// Whether a reference leads to a schema that declares a secret. Each is followed once.
    fn refers(&mut self, reference: &str) -> bool {
        if self.seen.iter().any(|seen| seen == reference) {
            return false;
        }
        self.seen.push(reference.to_string());
        let root = self.root;
        let found = match reference.strip_prefix('#') {
            // The whole schema is checked by itself.
            Some("") => None,
            Some(pointer) if pointer.starts_with('/') => root.pointer(pointer),
            Some(anchor) => find_anchor(root, anchor),
            None => None,
        };
        found.is_some_and(|schema| self.is_declared(schema))
    }
}

/// The schema that has this anchor.
fn find_anchor<'a>(schema: &'a Value, anchor: &str) -> Option<&'a Value> {
    match schema {
        Value::Object(fields) => {
            let is_it = |name: &str| fields.get(name).and_then(Value::as_str) == Some(anchor);
            if is_it("$anchor") || is_it("$dynamicAnchor") {
                return Some(schema);
            }
            fields.values().find_map(|field| find_anchor(field, anchor))
        }
        Value::Array(items) => items.iter().find_map(|item| find_anchor(item, anchor)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The letters and digits of a name, in lower case: `X-Api-Key` is `apiKey` is `api_key`.
fn letters(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The words of a name, in lower case: of `dbPwd_2` they are `db`, `pwd` and `2`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = letter.is_lowercase();
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
    }
    words
}
