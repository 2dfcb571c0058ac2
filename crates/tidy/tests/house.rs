//! The habits of this house, over the whole tree. A failing test lists every place to mend.

use platter_tidy::{Complaint, Source, Tree};

fn all_mended(complaints: impl Iterator<Item = Complaint>) {
    let lines: Vec<String> = complaints.map(|complaint| complaint.to_string()).collect();
    assert!(lines.is_empty(), "{} places to mend:\n{}", lines.len(), lines.join("\n"));
}

fn rust_obeys(rule: fn(&Source) -> Vec<Complaint>) {
    all_mended(Tree::read().rust().flat_map(rule));
}

#[test]
fn the_tree_is_there() {
    let tree = Tree::read();
    assert!(tree.rust().any(|source| source.path == "crates/tidy/tests/house.rs"));
    assert!(tree.manifests().count() > 10, "the crates' manifests are found");
    assert!(tree.sources.iter().any(|source| source.path == "Makefile"));
}

#[test]
fn source_files_are_short() {
    rust_obeys(platter_tidy::source_files_are_short);
}

#[test]
fn functions_are_short() {
    rust_obeys(platter_tidy::functions_are_short);
}

#[test]
fn lines_are_short() {
    rust_obeys(platter_tidy::lines_are_short);
}

#[test]
fn files_open_with_their_invariants() {
    rust_obeys(platter_tidy::opens_with_its_invariants);
}

#[test]
fn invariants_are_asserted() {
    rust_obeys(platter_tidy::invariants_are_asserted);
}

#[test]
fn numbers_have_kinds() {
    rust_obeys(platter_tidy::numbers_have_kinds);
}

#[test]
fn nothing_is_left_undone() {
    rust_obeys(platter_tidy::nothing_is_left_undone);
}

#[test]
fn unsafe_is_rare_and_explained() {
    rust_obeys(platter_tidy::unsafe_is_explained);
    rust_obeys(platter_tidy::crate_forbids_unsafe);
}

#[test]
fn nothing_in_the_engine_is_selected_by_chance() {
    rust_obeys(platter_tidy::nothing_is_selected_by_chance);
}

#[test]
fn file_names_say_what_is_inside() {
    rust_obeys(platter_tidy::file_names_say_what_is_inside);
}

#[test]
fn dependencies_are_free_and_self_contained() {
    all_mended(platter_tidy::dependencies_are_free_and_self_contained().into_iter());
}

#[test]
fn no_source_is_dead() {
    all_mended(platter_tidy::no_source_is_dead(&Tree::read()).into_iter());
}

#[test]
fn modules_use_each_other_in_one_direction() {
    all_mended(platter_tidy::modules_use_each_other_in_one_direction(&Tree::read()).into_iter());
}

#[test]
fn crates_keep_to_themselves() {
    rust_obeys(platter_tidy::crates_keep_to_themselves);
    all_mended(platter_tidy::the_table_of_crates_is_complete(&Tree::read()).into_iter());
}

#[test]
fn walks_lead_through_files_that_exist() {
    all_mended(platter_tidy::walks_lead_through_files_that_exist(&Tree::read()).into_iter());
}

#[test]
fn everything_beside_the_code_is_mentioned() {
    all_mended(platter_tidy::everything_beside_the_code_is_mentioned(&Tree::read()).into_iter());
}

#[test]
fn nothing_is_heavy() {
    all_mended(platter_tidy::nothing_is_heavy().into_iter());
}

#[test]
fn imports_point_downwards() {
    all_mended(Tree::read().manifests().flat_map(platter_tidy::dependencies_point_downwards));
}

#[test]
fn the_tree_names_no_machine() {
    all_mended(Tree::read().sources.iter().flat_map(platter_tidy::no_machine_paths));
}
