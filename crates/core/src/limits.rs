//! Every named maximum, with its reason. Nothing in Windlass queues, buffers, pages or nests beyond one of these.

/// Declares the limits once: the struct, its defaults, and the table that `windlass doctor` prints.
macro_rules! limits {
    ($($(#[doc = $reason:literal])+ $name:ident = $default:expr;)+) => {
        /// The limits in force. Every field may be set in `windlass.toml` under `[limits]`.
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits {
            $($(#[doc = $reason])+ pub $name: u64,)+
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($name: $default,)+ }
            }
        }

        impl Limits {
            /// Every limit: its name, the value in force, and why it exists.
            pub fn table(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((stringify!($name), self.$name, concat!($($reason),+).trim_ascii())),+]
            }
        }
    };
}

limits! {
    /// A batch is answered as a whole, so its size bounds the memory of one answer.
    batch_calls_max = 256;
    /// Ids come from the model and are kept in every journal entry of the call.
    call_id_chars_max = 128;
    /// A key is chosen by the caller and kept with its batch for good.
    batch_key_chars_max = 256;
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
    /// A model reads the first problems and repairs; more would only fill its context.
    problems_max = 10;
    /// Every repair is recorded with its call; arguments that need more are wrong, not misspelt.
    repairs_max = 100;
    /// The same calls with the same results in so many batches in a row get nowhere: the next is not run.
    loop_batches_max = 5;
    /// A cycle of two to four such batches gets nowhere once it was gone through so often.
    loop_cycles_max = 3;
    /// How far back the loop guard looks; it is kept in memory for every session that is in use.
    loop_calls_max = 64;
    /// What one answer may take of a model's context, in bytes.
    answer_bytes_max = 50 << 10;
    /// What one answer may take of a model's context, in lines.
    answer_lines_max = 2_000;
    /// Larger results stay bytes: parsing them would multiply their size in memory.
    result_json_bytes_max = 8 << 20;
    /// One output kept whole; a tool that writes more is stopped, so that it cannot fill the disk.
    artifact_bytes_max = 2 << 30;
    /// Output is stored in pieces of this size, so that a large one never lies whole in memory.
    chunk_bytes_max = 256 << 10;
    /// Calls that are open at once in the process; past that a batch is refused as overloaded.
    calls_open_max = 10_000;
    /// Sessions that are remembered as owned; past that the idle ones are let go and taken again when they are used.
    sessions_owned_max = 10_000;
    /// The last lines of a command's error output, told to the model when it fails.
    stderr_tail_bytes_max = 4 << 10;
    /// Threads for tools that are not quick: one that blocks its thread takes one of these, never the runtime's.
    tool_threads_max = 8;
    /// Threads for tools that compute or block by declaration.
    blocking_threads_max = 64;
    /// Changes that share one commit; more would make the first of them wait for the last.
    group_changes_max = 1_024;
    /// Past this size of the write-ahead log the writer waits for a checkpoint, so that the log stays bounded.
    wal_bytes_max = 64 << 20;
    /// Kept free on the disk, and used when it is full, so that running work can end.
    ballast_bytes = 1 << 20;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_reason_and_a_value() {
        for (name, value, reason) in Limits::default().table() {
            assert!(value > 0, "{name} is zero");
            assert!(reason.ends_with('.'), "{name}: its reason is a sentence: {reason:?}");
        }
    }
}
