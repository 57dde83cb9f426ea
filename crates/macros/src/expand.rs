//! From the function to the tool.

use crate::docs::description;
use crate::function::{ArgumentStyle, ParameterProperty, Passed, ToolFunction};
use crate::options::{ToolOptions, distance};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Error, ItemFn, LitStr, Result};

/// Longest name that a tool may have.
const NAME_CHARS_MAX: usize = 64;

/// The constructor of the tool that the function describes.
pub(crate) fn tool(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options: ToolOptions = syn::parse2(options)?;
    let item: ItemFn = syn::parse2(item)
        .map_err(|error| Error::new(error.span(), "`#[tool]` stands on an async function, `async fn …`"))?;
    let function = ToolFunction::read(item)?;
    check_name(&options, &function)?;
    check_background(&options)?;
    check_places(&options, &function)?;
    Ok(written(&options, &function))
}

fn name_of(options: &ToolOptions, function: &ToolFunction) -> LitStr {
    let ident = &function.item.sig.ident;
    let name = || LitStr::new(ident.to_string().trim_start_matches("r#"), ident.span());
    options.name.clone().unwrap_or_else(name)
}

fn check_name(options: &ToolOptions, function: &ToolFunction) -> Result<()> {
    let name = name_of(options, function);
    let text = name.value();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=NAME_CHARS_MAX).contains(&text.len()) && text.chars().all(fits) {
        return Ok(());
    }
    let told = format!(
        "the name of a tool has 1 to {NAME_CHARS_MAX} of a-z, A-Z, 0-9, _ and -; give another with `name = \"…\"`"
    );
    Err(Error::new(name.span(), told))
}

fn check_background(options: &ToolOptions) -> Result<()> {
    match options.background {
        Some(span) if options.claims.is_none() => Err(Error::new(
            span,
            "a tool that goes on in the background says what it reads and writes; add `claims = [\"write …\"]`, or \
             `claims = []` if it collides with nothing",
        )),
        Some(_) | None => Ok(()),
    }
}

/// Checks that every name in braces, in a claim or a dedupe key, is a parameter.
fn check_places(options: &ToolOptions, function: &ToolFunction) -> Result<()> {
    let ArgumentStyle::Properties(properties) = &function.arguments else { return Ok(()) };
    let names: Vec<String> = properties.iter().map(|property| property.name.to_string()).collect();
    let texts = options.claims.iter().flatten().chain(&options.dedupe);
    for text in texts {
        for place in places(&text.value()) {
            if names.contains(&place) {
                continue;
            }
            let nearest = names.iter().min_by_key(|name| distance(name, &place));
            let hint = nearest.map_or(" it has none".to_owned(), |near| format!(" did you mean {{{near}}}?"));
            return Err(Error::new(
                text.span(),
                format!("{{{place}}} names no parameter of the tool;{hint}"),
            ));
        }
    }
    Ok(())
}

/// The names in braces.
fn places(text: &str) -> Vec<String> {
    text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0.to_owned())).collect()
}

fn written(options: &ToolOptions, function: &ToolFunction) -> TokenStream {
    let ToolFunction { item, description, state, .. } = function;
    let (ident, visibility) = (&item.sig.ident, &item.vis);
    let kept: Vec<&Attribute> =
        item.attrs.iter().filter(|attribute| !attribute.path().is_ident("doc")).collect();
    let docs = item.attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let (state_names, state_types): (Vec<_>, Vec<_>) = state.iter().map(|(name, ty)| (name, ty)).unzip();
    let (arguments, arguments_type) = arguments(&function.arguments);
    let name = name_of(options, function);
    let claims = options
        .claims
        .as_ref()
        .map(|claims| quote!(spec.claims = ::std::option::Option::Some(::std::vec![#(#claims.into()),*]);));
    let dedupe = options.dedupe.as_ref().map(|key| {
        quote! {
            spec.dedupe = ::std::option::Option::Some(::windlass::tool::Dedupe {
                key: #key.into(),
                ..::std::default::Default::default()
            });
        }
    });
    let output_schema = output_schema(options, function);
    let fields = &options.fields;
    let run = run(function, &arguments_type);
    let mut body = item.clone();
    body.attrs = kept.into_iter().cloned().collect();
    body.vis = syn::Visibility::Inherited;
    body.sig.ident = format_ident!("body");
    quote! {
        #(#docs)*
        #visibility fn #ident(#(#state_names: #state_types),*) -> impl ::windlass::Tool {
            #arguments
            #body
            struct FunctionTool { #(#state_names: #state_types),* }
            impl ::windlass::Tool for FunctionTool {
                fn spec(&self) -> ::windlass::ToolSpec {
                    let mut spec = ::windlass::ToolSpec::default();
                    spec.name = #name.into();
                    spec.description = #description.into();
                    spec.input_schema =
                        ::std::option::Option::Some(::windlass::__private::input_schema::<#arguments_type>());
                    #output_schema
                    #claims
                    #dedupe
                    #(#fields)*
                    spec
                }
                #run
            }
            FunctionTool { #(#state_names),* }
        }
    }
}

/// The struct that the arguments are read into, and its type.
fn arguments(arguments: &ArgumentStyle) -> (TokenStream, TokenStream) {
    let properties = match arguments {
        ArgumentStyle::Struct(ty) => return (TokenStream::new(), quote!(#ty)),
        ArgumentStyle::Properties(properties) => properties,
    };
    let fields = properties.iter().map(|ParameterProperty { name, ty, attributes }| {
        let description = description(attributes);
        let docs = (!description.is_empty()).then(|| quote!(#[doc = #description]));
        let others = attributes.iter().filter(|attribute| !attribute.path().is_ident("doc"));
        quote!(#docs #(#others)* #name: #ty)
    });
    let made = quote! {
        #[derive(::windlass::__private::serde::Deserialize, ::windlass::__private::schemars::JsonSchema)]
        #[serde(crate = "::windlass::__private::serde", deny_unknown_fields)]
        #[schemars(crate = "::windlass::__private::schemars")]
        struct Parameters { #(#fields),* }
    };
    (made, quote!(Parameters))
}

fn output_schema(options: &ToolOptions, function: &ToolFunction) -> Option<TokenStream> {
    let value =
        function.value.as_ref().filter(|_| !options.no_output_schema && !function.returns_output())?;
    Some(quote!(spec.output_schema = ::windlass::__private::output_schema::<#value>();))
}

fn run(function: &ToolFunction, arguments_type: &TokenStream) -> TokenStream {
    let passed = function.passed.iter().map(|passed| match passed {
        Passed::Args => quote!(args),
        Passed::Property(name) => quote!(args.#name),
        Passed::Context => quote!(cx),
        Passed::State(name) => quote!(&self.#name),
    });
    let called = quote!(body(#(#passed),*).await);
    let value = match (function.returns_result, function.returns_output()) {
        (true, true) => quote!(#called.map_err(::windlass::__private::failure)),
        (true, false) => {
            quote!(::windlass::__private::output(#called.map_err(::windlass::__private::failure)?))
        }
        (false, true) => quote!(::std::result::Result::Ok(#called)),
        (false, false) => quote!(::windlass::__private::output(#called)),
    };
    quote! {
        fn run<'a>(
            &'a self,
            args: ::windlass::__private::Value,
            cx: &'a ::windlass::Cx,
        ) -> ::windlass::ToolFuture<'a> {
            ::std::boxed::Box::pin(async move {
                let _ = cx;
                let args: #arguments_type = ::windlass::__private::arguments(args)?;
                let _ = &args;
                #value
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compiler error for a tool that is written wrongly.
    fn told(source: &str) -> String {
        let (options, function) = source.split_once('|').unwrap_or_default();
        let result = tool(options.parse().unwrap_or_default(), function.parse().unwrap_or_default());
        match result {
            Ok(_) => "it is a tool".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_mistake_is_told_with_what_to_write_instead() {
        let mistakes = [
            "| /// A.\n fn a() {}",
            "| async fn a() {}",
            "| /// A.\n struct A;",
            "| /// A.\n async fn a<T>(x: T) {}",
            "| /// A.\n async fn a(&self) {}",
            "| /// A.\n async fn a(cx: Cx) {}",
            "| /// A.\n async fn a(name: &str) {}",
            "| /// A.\n async fn a((x, y): (u8, u8)) {}",
            "| /// A.\n async fn a(args: Args, more: u8) {}",
            "| /// A.\n async fn a(more: u8, args: Args) {}",
            "| /// A.\n async fn a(#[state] db: Db) {}",
            "| /// A.\n async fn a(#[state] db: &mut Db) {}",
            "clas = \"once\" | /// A.\n async fn a() {}",
            "class = once | /// A.\n async fn a() {}",
            "class = \"twice\" | /// A.\n async fn a() {}",
            "background | /// A.\n async fn a() {}",
            "quick, quick | /// A.\n async fn a() {}",
            "quick = 1 | /// A.\n async fn a() {}",
            "claims = \"write a\" | /// A.\n async fn a() {}",
            "claims = [\"write file:{pth}\"] | /// A.\n async fn a(path: String) {}",
            "dedupe = \"{order}\" | /// A.\n async fn a() {}",
            "timeout_ms = \"5 s\" | /// A.\n async fn a() {}",
            "retry = 3 | /// A.\n async fn a() {}",
            "retry(tries = 3) | /// A.\n async fn a() {}",
            "emits = \"x\" | /// A.\n async fn a() {}",
            "name = \"my tool\" | /// A.\n async fn a() {}",
        ];
        let lines: String = mistakes
            .iter()
            .map(|mistake| format!("{}\n  {}\n", mistake.replace('\n', ""), told(mistake)))
            .collect();
        insta::assert_snapshot!(lines);
    }

    #[test]
    fn what_is_right_is_a_tool() {
        for right in [
            "| /// A.\n async fn a() {}",
            "| #[doc = \"A.\"] pub async fn a(cx: &Cx, x: u8, #[state] db: &Db) -> Result<(), E> {}",
            "background, claims = [] | /// A.\n async fn a(args: Args) -> Output {}",
            "claims = [\"read file:{path}\"], dedupe = \"{path}\" | /// A.\n async fn a(path: String) {}",
        ] {
            assert_eq!(told(right), "it is a tool", "{right}");
        }
    }
}
