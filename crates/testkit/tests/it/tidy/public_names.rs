//! The public names of the library `windlass`: one path each, few at the root, and a committed list of all.

use super::{Problems, root, text};
use std::collections::BTreeMap;
use syn::{Attribute, Item, UseTree, Visibility};

/// The file that says what is public.
const LIB: &str = "crates/runtime/src/lib.rs";
/// The committed list.
const LIST: &str = "crates/runtime/public-names.txt";
/// A program begins at the root, so its names fit on one screen. The modules are not counted.
const ROOT_NAMES_MAX: usize = 25;

/// A public name: its path, and the item that it stands for.
struct PublicName {
    path: String,
    item: String,
    is_module: bool,
}

/// The public names of a crate's root, with those of its inline modules. What docs hide is not public.
fn public_names(source: &str, problems: &mut Problems) -> Vec<PublicName> {
    let file = syn::parse_file(source).expect("the source is Rust");
    let mut found = Vec::new();
    add_items(&file.items, "windlass", &mut found, problems);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn add_items(items: &[Item], module: &str, found: &mut Vec<PublicName>, problems: &mut Problems) {
    for item in items {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "`syn` has many items, and only these are looked at"
        )]
        match item {
            Item::Use(item) if is_public(&item.vis) && !is_left_out(&item.attrs) => {
                add_tree(&item.tree, (module, String::new()), found, problems);
            }
            Item::Mod(item) if is_public(&item.vis) && !is_left_out(&item.attrs) => {
                let path = format!("{module}::{}", item.ident);
                match &item.content {
                    Some((_, items)) => add_items(items, &path, found, problems),
                    None => problems.add(LIB, format!("{path} is a file: choose its names with `pub use`")),
                }
                found.push(PublicName { item: path.clone(), path, is_module: true });
            }
            Item::Use(_) | Item::Mod(_) => {}
            Item::Struct(item) if !is_public(&item.vis) || is_left_out(&item.attrs) => {}
            _ => problems.add(LIB, format!("{module} defines an item: put it into a room and re-export it")),
        }
    }
}

/// Adds the leaves of a `pub use`; `place` is the module that it stands in, and the path down to this tree.
fn add_tree(tree: &UseTree, place: (&str, String), found: &mut Vec<PublicName>, problems: &mut Problems) {
    let (module, above) = place;
    let mut add = |name: String, item: String| {
        let path = format!("{module}::{name}");
        found.push(PublicName { path, is_module: !item.contains("::"), item });
    };
    match tree {
        UseTree::Path(path) => {
            add_tree(&path.tree, (module, format!("{above}{}::", path.ident)), found, problems);
        }
        UseTree::Name(name) => add(name.ident.to_string(), format!("{above}{}", name.ident)),
        UseTree::Rename(rename) => add(rename.rename.to_string(), format!("{above}{}", rename.ident)),
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| add_tree(tree, (module, above.clone()), found, problems));
        }
        _ => problems.add(LIB, format!("{module} re-exports {above}*: name what is public")),
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Whether the docs hide an item, or only doc tests have it.
fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        (attribute.path().is_ident("doc") && list == "hidden")
            || (attribute.path().is_ident("cfg") && list == "doctest")
    })
}

/// Each name has one path, and the root has few.
fn placed_well(names: &[PublicName], problems: &mut Problems) {
    let mut by_name: BTreeMap<&str, &str> = BTreeMap::new();
    let mut by_item: BTreeMap<&str, &str> = BTreeMap::new();
    for PublicName { path, item, .. } in names.iter().filter(|name| !name.is_module) {
        let name = path.rsplit("::").next().unwrap_or(path);
        let item = item.strip_prefix("crate::").unwrap_or(item);
        if let Some(other) = by_name.insert(name, path).or(by_item.insert(item, path)) {
            problems.add(path, format!("is {other} too: keep one path"));
        }
    }
    let at_root = names.iter().filter(|name| !name.is_module && name.path.matches("::").count() == 1).count();
    if at_root > ROOT_NAMES_MAX {
        problems
            .add(LIB, format!("{at_root} names at the root, and {ROOT_NAMES_MAX} are enough: use a topic"));
    }
}

#[test]
fn every_public_name_is_listed_and_has_one_path() {
    let sample = |source: &str, expected: &[&str]| {
        let mut problems = Problems::default();
        let names = public_names(source, &mut problems);
        placed_well(&names, &mut problems);
        problems.are(expected);
        names.into_iter().map(|name| name.path).collect::<Vec<_>>()
    };
    let listed = sample(
        "mod room; pub use room::{A, b::C as D}; use room::E; pub mod topic { pub use crate::room::F; }
         #[doc(hidden)] pub mod inside { pub use a::G; } pub use other as store; #[cfg(doctest)] struct Page;",
        &[],
    );
    assert_eq!(
        listed,
        ["windlass::A", "windlass::D", "windlass::store", "windlass::topic", "windlass::topic::F"]
    );
    sample("pub use a::A; pub mod topic { pub use crate::b::A; }", &["is windlass::A too"]);
    sample("pub use a::A; pub mod topic { pub use crate::a::A as B; }", &["is windlass::A too"]);
    sample("pub use a::*;", &["re-exports a::*"]);
    sample("pub mod file;", &["windlass::file is a file"]);
    sample("pub struct A;", &["defines an item"]);
    let many: Vec<String> = (0..=ROOT_NAMES_MAX).map(|n| format!("A{n}")).collect();
    sample(&format!("pub use a::{{{}}};", many.join(", ")), &["26 names at the root"]);

    let mut problems = Problems::default();
    let names = public_names(&text(LIB).expect("it is text"), &mut problems);
    placed_well(&names, &mut problems);
    problems.none();
    let mut paths: Vec<&str> = names.iter().map(|name| name.path.as_str()).collect();
    // A macro and a module may share a path.
    paths.dedup();
    let listed: String = paths.iter().map(|path| format!("{path}\n")).collect();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(root().join(LIST), &listed).expect("the list can be written");
    }
    let committed = std::fs::read_to_string(root().join(LIST)).unwrap_or_default();
    let missing: Vec<_> =
        listed.lines().filter(|path| !committed.lines().any(|line| line == *path)).collect();
    let gone: Vec<_> = committed.lines().filter(|line| !listed.lines().any(|path| path == *line)).collect();
    assert!(
        listed == committed,
        "{LIST} is not what {LIB} makes public. New: {missing:?}. Gone: {gone:?}. If that is meant: UPDATE=1 cargo test -p \
         windlass-testkit --test it every_public_name"
    );
}
