//! The function of a tool: its parameters and its result.

use crate::docs::description;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, ItemFn, Pat, PatType, PathArguments, Result, ReturnType,
    Type,
};

/// The function, with its parameters classified.
pub(crate) struct ToolFunction {
    pub(crate) item: ItemFn,
    pub(crate) description: String,
    pub(crate) arguments: ArgumentStyle,
    /// The parameters in order, as the body gets them.
    pub(crate) passed: Vec<Passed>,
    /// The tool's state: names and types.
    pub(crate) state: Vec<(Ident, Type)>,
    /// The type of the value.
    pub(crate) value: Option<Type>,
    pub(crate) returns_result: bool,
}

/// The model's arguments.
pub(crate) enum ArgumentStyle {
    /// One struct, as the parameter `args`.
    Struct(Box<Type>),
    /// Each parameter is a property.
    Properties(Vec<ParameterProperty>),
}

/// A parameter that is a property of the arguments.
pub(crate) struct ParameterProperty {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    pub(crate) attributes: Vec<Attribute>,
}

/// A parameter of the body.
pub(crate) enum Passed {
    Args,
    Property(Ident),
    Context,
    State(Ident),
}

impl ToolFunction {
    pub(crate) fn read(mut item: ItemFn) -> Result<ToolFunction> {
        if item.sig.asyncness.is_none() {
            let told = format!("a tool is an async function; write `async fn {}`", item.sig.ident);
            return Err(Error::new(item.sig.fn_token.span(), told));
        }
        if !item.sig.generics.params.is_empty() {
            let told = "a tool has no type or lifetime parameters, since its schema must be known; use concrete types";
            return Err(Error::new(item.sig.generics.span(), told));
        }
        let description = description(&item.attrs);
        if description.is_empty() {
            let told = "a tool needs a description, which is what the model reads; write it as a doc comment, `/// Charges …`";
            return Err(Error::new(item.sig.ident.span(), told));
        }
        let mut function = ToolFunction {
            description,
            arguments: ArgumentStyle::Properties(Vec::new()),
            passed: Vec::new(),
            state: Vec::new(),
            value: None,
            returns_result: false,
            item: item.clone(),
        };
        for input in &mut item.sig.inputs {
            function.parameter(input)?;
        }
        function.item = item;
        function.returned();
        Ok(function)
    }

    fn parameter(&mut self, input: &mut FnArg) -> Result<()> {
        let parameter = match input {
            FnArg::Typed(parameter) => parameter,
            FnArg::Receiver(receiver) => {
                let told = "a tool is a function of its own; hand over what it needs as `#[state] db: &Db`";
                return Err(Error::new(receiver.span(), told));
            }
        };
        let Pat::Ident(name) = &*parameter.pat else {
            return Err(Error::new(parameter.pat.span(), "give the parameter a name, which the model uses"));
        };
        let name = name.ident.clone();
        let attributes = std::mem::take(&mut parameter.attrs);
        if attributes.iter().any(|attribute| attribute.path().is_ident("state")) {
            return self.state(name, parameter);
        }
        if is_context(&parameter.ty) {
            if !matches!(&*parameter.ty, Type::Reference(_)) {
                return Err(Error::new(parameter.ty.span(), "take the context by reference, `cx: &Cx`"));
            }
            self.passed.push(Passed::Context);
            return Ok(());
        }
        if let Type::Reference(reference) = &*parameter.ty {
            let told = "arguments are made from JSON, so they are owned: use `String` for `&str`, `Vec<T>` for `&[T]`; \
                        what the tool holds is `#[state] name: &Type`";
            return Err(Error::new(reference.span(), told));
        }
        self.argument(name, parameter, attributes)
    }

    fn argument(&mut self, name: Ident, parameter: &PatType, attributes: Vec<Attribute>) -> Result<()> {
        let told = "a tool takes either one struct, `args: MyArgs`, or plain parameters; name the struct's fields as \
                    parameters, or put the parameters into the struct";
        match &mut self.arguments {
            ArgumentStyle::Struct(_) => return Err(Error::new(name.span(), told)),
            ArgumentStyle::Properties(known) if name == "args" => {
                if !known.is_empty() {
                    return Err(Error::new(name.span(), told));
                }
                self.arguments = ArgumentStyle::Struct(parameter.ty.clone());
                self.passed.push(Passed::Args);
            }
            ArgumentStyle::Properties(known) => {
                known.push(ParameterProperty { name: name.clone(), ty: (*parameter.ty).clone(), attributes });
                self.passed.push(Passed::Property(name));
            }
        }
        Ok(())
    }

    fn state(&mut self, name: Ident, parameter: &PatType) -> Result<()> {
        let Type::Reference(reference) = &*parameter.ty else {
            return Err(Error::new(
                parameter.ty.span(),
                "many calls share what a tool holds, so take it as `&Type`",
            ));
        };
        if reference.mutability.is_some() {
            let told = "many calls share what a tool holds; use `&Mutex<Type>` to change it";
            return Err(Error::new(reference.span(), told));
        }
        self.state.push((name.clone(), (*reference.elem).clone()));
        self.passed.push(Passed::State(name));
        Ok(())
    }

    /// The type of the value, without the `Result` around it.
    fn returned(&mut self) {
        let ReturnType::Type(_, ty) = &self.item.sig.output else { return };
        self.value = Some((**ty).clone());
        let Type::Path(path) = &**ty else { return };
        let Some(last) = path.path.segments.last().filter(|last| last.ident == "Result") else { return };
        self.returns_result = true;
        let PathArguments::AngleBracketed(arguments) = &last.arguments else { return };
        if let Some(GenericArgument::Type(value)) = arguments.args.first() {
            self.value = Some(value.clone());
        }
    }

    /// Whether the value is an `Output`.
    pub(crate) fn returns_output(&self) -> bool {
        self.value.as_ref().is_some_and(|ty| is_named(ty, "Output"))
    }
}

fn is_context(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => is_named(&reference.elem, "Cx"),
        other => is_named(other, "Cx"),
    }
}

fn is_named(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}
