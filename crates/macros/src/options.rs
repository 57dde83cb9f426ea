//! The options of `#[tool(…)]`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitInt, LitStr, Result, Token, Type, bracketed, parenthesized};

/// The options of a tool, each checked as far as possible at compile time.
#[derive(Default)]
pub(crate) struct ToolOptions {
    pub(crate) name: Option<LitStr>,
    pub(crate) claims: Option<Vec<LitStr>>,
    pub(crate) dedupe: Option<LitStr>,
    pub(crate) background: Option<Span>,
    pub(crate) no_output_schema: bool,
    /// Fields of the specification.
    pub(crate) fields: Vec<TokenStream>,
}

const TEXTS: [&str; 3] = ["id", "title", "version"];
const CLASSES: [&str; 4] = ["read", "keyed", "stepped", "once"];
const FLAGS: [&str; 7] =
    ["background", "background_only", "cpu_bound", "quick", "persist_output", "polls", "stays_direct"];
const HINTS: [&str; 9] = [
    "read_only",
    "destructive",
    "idempotent",
    "open_world",
    "requires_secrets",
    "long_running",
    "reads_private",
    "ingests_untrusted",
    "sends_out",
];
/// Numbers, each with the field of the specification that it sets.
const NUMBERS: [(&str, &str); 8] = [
    ("queue_ms", "deadlines.queue_ms"),
    ("timeout_ms", "deadlines.attempt_ms"),
    ("silence_ms", "deadlines.silence_ms"),
    ("total_ms", "deadlines.total_ms"),
    ("grace_ms", "grace_ms"),
    ("inline_ms", "inline_ms"),
    ("answer_bytes_max", "answer.bytes_max"),
    ("answer_lines_max", "answer.lines_max"),
];
const OTHERS: [&str; 13] = [
    "approval",
    "deferral",
    "name",
    "class",
    "claims",
    "dedupe",
    "retry",
    "groups",
    "running_max",
    "per_minute",
    "emits",
    "signals",
    "output_schema",
];

impl Parse for ToolOptions {
    fn parse(input: ParseStream<'_>) -> Result<ToolOptions> {
        let mut options = ToolOptions::default();
        let mut seen: Vec<String> = Vec::new();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            let name = key.to_string();
            if seen.contains(&name) {
                return Err(Error::new(key.span(), format!("`{name}` is given twice; leave one out")));
            }
            options.option(&key, input)?;
            seen.push(name);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

impl ToolOptions {
    fn option(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        let name = key.to_string();
        match name.as_str() {
            "name" => self.name = Some(text(key, input)?),
            "dedupe" => self.dedupe = Some(text(key, input)?),
            "claims" => self.claims = Some(list(key, input)?),
            "class" => self.class(key, input)?,
            "deferral" => self.deferral(key, input)?,
            "approval" => self.approval(key, input)?,
            "retry" => self.retry(key, input)?,
            "groups" => {
                let groups = list(key, input)?;
                self.fields.push(quote!(spec.groups = ::std::vec![#(#groups.into()),*];));
            }
            "running_max" => {
                let max = number(key, input)?;
                self.fields.push(quote!(spec.running_max = ::std::option::Option::Some(#max);));
            }
            "per_minute" => {
                let count = number(key, input)?;
                self.fields.push(quote!(spec.rate = ::std::option::Option::Some((#count, 60_000));));
            }
            "emits" | "signals" => self.kinds(key, input)?,
            "output_schema" => self.no_output_schema = !is_on(key, input)?,
            _ if TEXTS.contains(&name.as_str()) => {
                let text = text(key, input)?;
                self.fields.push(quote!(spec.#key = #text.into();));
            }
            _ if FLAGS.contains(&name.as_str()) => {
                let on = is_on(key, input)?;
                if on && matches!(name.as_str(), "background" | "background_only") {
                    self.background = Some(key.span());
                    self.fields.push(quote!(spec.flags.background = true;));
                }
                self.fields.push(quote!(spec.flags.#key = #on;));
            }
            _ if HINTS.contains(&name.as_str()) => {
                let on = is_on(key, input)?;
                self.fields.push(quote!(spec.hints.#key = ::std::option::Option::Some(#on);));
            }
            _ => match NUMBERS.iter().find(|(option, _)| *option == name) {
                Some((_, field)) => {
                    let given = number(key, input)?;
                    let field: TokenStream = field.parse()?;
                    self.fields.push(quote!(spec.#field = ::std::option::Option::Some(#given);));
                }
                None => return Err(unknown(key)),
            },
        }
        Ok(())
    }

    fn class(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        let class = text(key, input)?;
        if !CLASSES.contains(&class.value().as_str()) {
            let told = format!(
                "there is no effect class {:?}; use \"read\" (changes nothing), \"keyed\" (the other side deduplicates), \
                 \"stepped\" (all effects are recorded steps) or \"once\" (must not be repeated)",
                class.value()
            );
            return Err(Error::new(class.span(), told));
        }
        let mut variant = class.value();
        variant[..1].make_ascii_uppercase();
        let variant = Ident::new(&variant, class.span());
        self.fields
            .push(quote!(spec.class = ::std::option::Option::Some(::windlass::EffectClass::#variant);));
        Ok(())
    }

    fn deferral(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        let deferral = text(key, input)?;
        let variant = match deferral.value().as_str() {
            "auto" => quote!(Auto),
            "never" => quote!(Never),
            "always" => quote!(Always),
            other => {
                let told = format!(
                    "there is no deferral {other:?}; use \"auto\" (listed by name in a session with many tools), \"never\" \
                     (always listed whole) or \"always\" (found by search_tools only)"
                );
                return Err(Error::new(deferral.span(), told));
            }
        };
        self.fields.push(quote!(spec.deferral = ::windlass::catalog::Deferral::#variant;));
        Ok(())
    }

    fn approval(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        let approval = text(key, input)?;
        let variant = match approval.value().as_str() {
            "never" => quote!(Never),
            "ask" => quote!(Ask),
            other => {
                let told = format!(
                    "there is no approval {other:?}; use \"ask\" (each call waits for a person) or \"never\" (only policy decides)"
                );
                return Err(Error::new(approval.span(), told));
            }
        };
        self.fields.push(quote!(spec.approval = ::windlass::policy::ApprovalRule::#variant;));
        Ok(())
    }

    /// `retry(attempts = 3, base_ms = 200, cap_ms = 30_000)`.
    fn retry(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        let wrong =
            |span| Error::new(span, "write it as `retry(attempts = 3, base_ms = 200, cap_ms = 30_000)`");
        if !input.peek(syn::token::Paren) {
            return Err(wrong(key.span()));
        }
        let inner;
        parenthesized!(inner in input);
        while !inner.is_empty() {
            let part: Ident = inner.parse()?;
            if !["attempts", "base_ms", "cap_ms"].contains(&part.to_string().as_str()) {
                return Err(wrong(part.span()));
            }
            let value = number(&part, &inner)?;
            self.fields.push(quote!(spec.retry.#part = ::std::option::Option::Some(#value);));
            if !inner.is_empty() {
                inner.parse::<Token![,]>()?;
            }
        }
        Ok(())
    }

    /// `emits(order_placed: OrderPlaced)`.
    fn kinds(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        if !input.peek(syn::token::Paren) {
            let told = format!("write it as `{key}(kind: PayloadType)`, one for each kind");
            return Err(Error::new(key.span(), told));
        }
        let inner;
        parenthesized!(inner in input);
        while !inner.is_empty() {
            let kind: Ident = inner.parse()?;
            inner.parse::<Token![:]>()?;
            let payload: Type = inner.parse()?;
            let name = kind.to_string();
            self.fields
                .push(quote!(spec.#key.insert(#name.into(), ::windlass::__private::schema::<#payload>());));
            if !inner.is_empty() {
                inner.parse::<Token![,]>()?;
            }
        }
        Ok(())
    }
}

fn unknown(key: &Ident) -> Error {
    let name = key.to_string();
    let times = NUMBERS.iter().map(|(option, _)| *option);
    let mut all: Vec<&str> = OTHERS.into_iter().chain(TEXTS).chain(FLAGS).chain(HINTS).chain(times).collect();
    all.sort_unstable();
    let nearest =
        all.iter().min_by_key(|option| distance(option, &name)).filter(|near| distance(near, &name) <= 3);
    let hint = nearest.map(|near| format!(" did you mean `{near}`?")).unwrap_or_default();
    Error::new(key.span(), format!("there is no option `{name}`;{hint} there are: {}", all.join(", ")))
}

/// The edit distance of two words.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, cb) in b.iter().enumerate() {
            let change = before + usize::from(ca != *cb);
            before = row[j + 1];
            row[j + 1] = change.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn text(key: &Ident, input: ParseStream<'_>) -> Result<LitStr> {
    let wrong = || Error::new(key.span(), format!("write it as `{key} = \"…\"`"));
    input.parse::<Token![=]>().map_err(|_| wrong())?;
    match input.parse::<Expr>()? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text),
        _ => Err(wrong()),
    }
}

fn number(key: &Ident, input: ParseStream<'_>) -> Result<LitInt> {
    let wrong = || Error::new(key.span(), format!("write it as a whole number, `{key} = 5`"));
    input.parse::<Token![=]>().map_err(|_| wrong())?;
    match input.parse::<Expr>()? {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => Ok(number),
        _ => Err(wrong()),
    }
}

fn list(key: &Ident, input: ParseStream<'_>) -> Result<Vec<LitStr>> {
    let wrong = || Error::new(key.span(), format!("write it as a list of texts, `{key} = [\"…\"]`"));
    input.parse::<Token![=]>().map_err(|_| wrong())?;
    if !input.peek(syn::token::Bracket) {
        return Err(wrong());
    }
    let inner;
    bracketed!(inner in input);
    let texts = Punctuated::<LitStr, Token![,]>::parse_terminated(&inner).map_err(|_| wrong())?;
    Ok(texts.into_iter().collect())
}

/// A bare word means `true`.
fn is_on(key: &Ident, input: ParseStream<'_>) -> Result<bool> {
    if !input.peek(Token![=]) {
        return Ok(true);
    }
    input.parse::<Token![=]>()?;
    match input.parse::<Expr>()? {
        Expr::Lit(ExprLit { lit: Lit::Bool(on), .. }) => Ok(on.value),
        _ => Err(Error::new(key.span(), format!("write `{key}` alone, or `{key} = false`"))),
    }
}
