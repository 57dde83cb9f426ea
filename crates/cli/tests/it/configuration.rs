//! `windlass.toml`: where it is read from, and what is said about mistakes in it.

use crate::rig::Rig;

#[test]
fn mistakes_are_named_with_their_place_and_nothing_runs() {
    let cases = [
        ("unknown key", "[tools.t]\ncomand = [\"true\"]\n"),
        ("unknown table", "[tool.t]\ncommand = [\"true\"]\n"),
        ("no TOML", "[tools.t\n"),
        ("later version", "[tools.t]\ncommand = [\"true\"]\napproval = \"always\"\n"),
        (
            "refused schema",
            "[tools.t]\ncommand = [\"true\"]\ninput = { type = \"object\", properties = { n = { type = \"nubmer\" } } }\n",
        ),
        (
            "schema from elsewhere",
            "[tools.t]\ncommand = [\"true\"]\ninput = { \"$ref\" = \"https://example.com/schema.json\" }\n",
        ),
        ("a name that is taken", "[tools.Echo]\ncommand = [\"true\"]\n"),
        ("a limit that is none", "[limits]\nbatch_calls_max = 0\n"),
    ];
    let mut told = String::new();
    for (name, toml) in cases {
        let rig = Rig::with(toml);
        let ran = rig.run(&["call", "add", r#"{"a": 1, "b": 2}"#]).expect(2);
        told.push_str(&format!("# {name}: {}", rig.told(&ran)));
        assert_eq!(rig.run(&["tools"]).expect(2).stderr, ran.stderr);
        assert_eq!(ran.stdout, "", "{name}: something ran");
    }
    insta::assert_snapshot!(told);
}

#[test]
fn a_file_that_is_no_text_is_told() {
    let rig = Rig::new();
    rig.write("windlass.toml", b"\xff\xfe");
    insta::assert_snapshot!(rig.told(&rig.run(&["tools"]).expect(2)));
}

#[test]
fn the_data_folder_comes_before_the_current_one() {
    let rig = Rig::with("[tools.here]\ncommand = [\"true\"]\n");
    let names = |args: &[&str]| {
        let tools = rig.run(args).expect(0).json();
        let tools = tools.as_array().expect("a list").iter();
        tools.map(|tool| tool["name"].to_string()).filter(|name| !name.contains('_')).collect::<Vec<_>>()
    };
    assert!(names(&["tools", "--json"]).contains(&"\"here\"".to_string()));
    std::fs::create_dir(rig.path("data")).expect("a folder");
    rig.write("data/windlass.toml", "[tools.there]\ncommand = [\"true\"]\n");
    let in_data = names(&["--data", "data", "tools", "--json"]);
    assert!(in_data.contains(&"\"there\"".to_string()) && !in_data.contains(&"\"here\"".to_string()));
}
