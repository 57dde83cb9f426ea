//! Limits on arguments and results; and the macro `limits`, with which each crate declares the limits that it enforces.

/// Declares the limits of one crate: a struct of the values in force, its defaults, and the table that `windlass doctor` prints.
/// The comment on a limit is its reason.
#[macro_export]
macro_rules! limits {
    (
        $(#[$about:meta])* struct $limits:ident { $($below:ident: $below_limits:ty)? }
        $($(#[doc = $reason:literal])+ $name:ident = $default:expr;)+
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $limits {
            $($(#[doc = $reason])+ pub $name: u64,)+
            $(
                /// The limits of the crate below.
                pub $below: $below_limits,
            )?
        }

        impl Default for $limits {
            fn default() -> $limits {
                $limits { $($name: $default,)+ $($below: Default::default(),)? }
            }
        }

        impl $limits {
            /// Every limit of this crate, in the order of declaration.
            pub fn table(&self) -> Vec<$crate::limits::NamedLimit> {
                vec![$($crate::limits::NamedLimit {
                    name: stringify!($name),
                    value: self.$name,
                    reason: concat!($($reason),+).trim_ascii(),
                }),+]
            }
        }
    };
}

/// A named maximum (or a time, or a page) that users can set under `[limits]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// Its key under `[limits]`.
    pub name: &'static str,
    /// The value in force.
    pub value: u64,
    /// The reason why it exists, in sentences.
    pub reason: &'static str,
}

/// The limits that this crate enforces, for `windlass_args::limits!` or for a macro that joins the limits of several crates: `$to`
/// is called with `$before` and the list.
#[macro_export]
macro_rules! arg_limits {
    ($($to:ident)::+; $($before:tt)*) => { $($to)::+! { $($before)*
        /// Arguments are held in memory while a call is open.
        args_bytes_max = 1 << 20;
        /// Nested deeper, arguments cannot be walked by everything that must walk them.
        args_depth_max = 64;
        /// A schema is compiled once and kept while its tool is registered.
        schema_bytes_max = 256 << 10;
        /// Compiling recurses with the schema, so its depth bounds the stack.
        schema_depth_max = 64;
        /// References may double at each level; this bounds what they unfold to.
        schema_nodes_max = 10_000;
        /// Schema nodes times argument nodes bounds the time of one validation.
        validation_work_max = 5_000_000;
        /// Values, counted as often as the schema looks at them, of which all problems are told: of larger ones only the first
        /// is, since collecting a hundred thousand takes longer than a call should.
        explained_values_max = 20_000;
        /// A model reads the first problems and repairs; more would only fill its context.
        problems_max = 10;
        /// Every repair is recorded with its call; arguments that need more are wrong, not misspelt.
        repairs_max = 100;
        /// Larger results stay bytes: parsing them would multiply their size in memory.
        result_json_bytes_max = 8 << 20;
        /// A JSON text may take this much memory once it is parsed, by estimate: `[{},{},…]` takes ten times its own size, and
        /// objects of one property a hundred times. A text that takes more is refused; output of a command stays text.
        json_memory_bytes_max = 32 << 20;
        /// One output is kept whole up to this size; a tool that writes more is stopped, so that it cannot fill the disk.
        artifact_bytes_max = 2 << 30;
    } };
}

arg_limits! { limits;
    /// Limits on arguments and results.
    struct ArgLimits {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_reason_and_a_value() {
        for NamedLimit { name, value, reason } in ArgLimits::default().table() {
            assert!(value > 0, "{name} is zero");
            assert!(reason.ends_with('.'), "{name}: its reason is a sentence: {reason:?}");
        }
    }
}
