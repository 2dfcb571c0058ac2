//! The habits of this house, as tests: `tests/house.rs` runs every rule over the whole tree.
//!
//! How it works:
//! - a rule is a function from source text to complaints, so that each can be shown to find what it is for;
//! - a complaint names file, line and what to do, and nothing else is printed;
//! - the tree is what lies in the work folder, ignoring build products, and what cargo knows of it; git is
//!   asked for what it knows of heavy files alone, and not needed.
#![forbid(unsafe_code)]

mod assertions;
mod boundaries;
mod chance;
mod circles;
mod dependencies;
mod functions;
mod layers;
mod mentions;
mod modules;
mod numbers;
mod paths;
mod text;
mod tokens;
mod tree;
mod unsafety;
mod uses;
mod walks;
mod weight;

pub use assertions::invariants_are_asserted;
pub use boundaries::{crates_keep_to_themselves, the_table_of_crates_is_complete};
pub use chance::nothing_is_selected_by_chance;
pub use circles::modules_use_each_other_in_one_direction;
pub use dependencies::dependencies_are_free_and_self_contained;
pub use functions::functions_are_short;
pub use layers::{Manifest, dependencies_point_downwards};
pub use mentions::everything_beside_the_code_is_mentioned;
pub use modules::no_source_is_dead;
pub use numbers::numbers_have_kinds;
pub use paths::{file_names_say_what_is_inside, no_machine_paths};
pub use text::{lines_are_short, nothing_is_left_undone, opens_with_its_invariants, source_files_are_short};
pub use tree::{Source, Tree};
pub use unsafety::{UNSAFE_CRATES, crate_forbids_unsafe, unsafe_is_explained};
pub use walks::walks_lead_through_files_that_exist;
pub use weight::nothing_is_heavy;

/// One thing to mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The file, from the root of the tree.
    pub file: String,
    /// The line, counted from 1; 0 when it is the file as a whole.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}
