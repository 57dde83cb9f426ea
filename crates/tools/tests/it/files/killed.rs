//! The process that owns a session is killed while it writes files, again and again. A file has its old or its new content, never
//! half of one; what was acknowledged is there; of several changes for the same content exactly one is made.

use crate::rig::RIG;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How many kills in the middle of a batch; a long run sets more.
const KILLS: &str = "WINDLASS_TEST_FILE_KILLS";
const KILLS_DEFAULT: usize = 24;
/// If so few kills come before the answer, something is wrong with the test.
const ROUNDS_PER_KILL_MAX: usize = 50;
/// A reply that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(120);

/// The process that owns the session.
struct FileOwner {
    child: Child,
    replies: Receiver<Vec<Value>>,
}

impl FileOwner {
    fn new(folder: &Path) -> FileOwner {
        let mut command = Command::new(RIG);
        command.arg("--files").arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (told, replies) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            // A line that is cut off acknowledges nothing.
            let lines = output.lines().map_while(Result::ok);
            lines.map_while(|line| serde_json::from_str(&line).ok()).for_each(|reply| drop(told.send(reply)));
        });
        FileOwner { child, replies }
    }

    fn ask(&mut self, batch: &Value) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{batch}").and_then(|()| input.flush()).unwrap();
    }

    fn reply(&self) -> Vec<Value> {
        self.replies.recv_timeout(PATIENCE).expect("the owner answers")
    }

    /// Kills it, and returns the reply that it had given, if it had.
    fn kill(mut self) -> Option<Vec<Value>> {
        self.child.kill().and_then(|()| self.child.wait()).unwrap();
        self.replies.iter().last()
    }
}

impl Drop for FileOwner {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Numbers that are the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, max: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % max.max(1)
    }
}

/// Calls that change one file, and the contents that it may have once they are over.
struct FileRound {
    path: &'static str,
    calls: Vec<(&'static str, Value)>,
    /// The content that each call would make.
    made: Vec<String>,
}

/// The line at which edits add theirs.
const END: &str = "-- end --\n";

fn round(number: usize, files: &BTreeMap<&'static str, (String, String)>, chance: &mut Chance) -> FileRound {
    let hash = |path: &str| files.get(path).map_or("absent".to_string(), |(_, hash)| hash.clone());
    match number % 3 {
        // A long file, whatever it was before.
        0 => {
            let lines = 1 + chance.below(20_000);
            let content =
                format!("{}{number} is whole\n", format!("line of {number}\n").repeat(lines as usize));
            let args = json!({ "path": "long.txt", "content": content });
            FileRound { path: "long.txt", calls: vec![("write_file", args)], made: vec![content] }
        }
        // Two that want to replace the same content.
        1 => {
            let made: Vec<String> = (0..2).map(|call| format!("{number} by call {call}\n")).collect();
            let args = |content| json!({ "path": "a/b/c.txt", "content": content, "expected_hash": hash("a/b/c.txt") });
            let calls = made.iter().map(|content| ("write_file", args(content))).collect();
            FileRound { path: "a/b/c.txt", calls, made }
        }
        // Three that add a line to the same content.
        _ => {
            let Some((old, _)) = files.get("list.txt") else {
                let args = json!({ "path": "list.txt", "content": END, "expected_hash": "absent" });
                return FileRound {
                    path: "list.txt",
                    calls: vec![("write_file", args)],
                    made: vec![END.into()],
                };
            };
            let lines: Vec<String> = (0..3).map(|call| format!("{number} by call {call}\n{END}")).collect();
            let args = |line: &String| json!({ "path": "list.txt", "expected_hash": hash("list.txt"), "old_text": END, "new_text": line });
            let calls = lines.iter().map(|line| ("edit_file", args(line))).collect();
            let made = lines.iter().map(|line| old.replace(END, line)).collect();
            FileRound { path: "list.txt", calls, made }
        }
    }
}

/// The one call that succeeded; the others must have been told that the file was changed.
fn winner(reply: &[Value], about: &str) -> usize {
    let won: Vec<usize> = (0..reply.len()).filter(|call| reply[*call]["state"] == "succeeded").collect();
    for (call, outcome) in reply.iter().enumerate() {
        assert!(
            won.contains(&call) || outcome["outcome"]["failure"]["tool_code"] == "stale",
            "{about}: {outcome:#}"
        );
    }
    assert_eq!(won.len(), 1, "{about}: {reply:#?}");
    won[0]
}

/// The files in the folder by path, and how many there are that were not finished.
fn on_disk(project: &Path) -> (BTreeMap<String, String>, usize) {
    let (mut found, mut unfinished) = (BTreeMap::new(), 0);
    for (path, content) in super::everything(project) {
        let path: PathBuf = path.strip_prefix(project).unwrap().into();
        match path.file_name().unwrap().to_str().unwrap().starts_with(".windlass-") {
            true => unfinished += 1,
            false => drop(found.insert(path.display().to_string(), String::from_utf8(content).unwrap())),
        }
    }
    (found, unfinished)
}

#[test]
fn a_file_is_old_or_new_and_what_was_acknowledged_is_there() {
    let kills: usize = std::env::var(KILLS).map_or(KILLS_DEFAULT, |kills| kills.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("project");
    std::fs::create_dir(&project).unwrap();
    let mut chance = Chance(22);
    let mut files: BTreeMap<&'static str, (String, String)> = BTreeMap::new();
    let mut owner = FileOwner::new(folder.path());
    let (mut number, mut killed, mut in_the_middle, mut left) = (0, 0, 0, 0);
    let mut took = Duration::ZERO;
    while in_the_middle < kills {
        number += 1;
        assert!(
            number < kills * ROUNDS_PER_KILL_MAX,
            "{in_the_middle} of {killed} kills were before the answer"
        );
        let FileRound { path, calls, made } = round(number, &files, &mut chance);
        let about = format!("round {number}, {path}");
        let batch = json!({ "key": format!("r{number}"), "calls": calls });
        owner.ask(&batch);
        // Some are not killed, to learn how long one takes.
        let reply = if number <= 6 || number % 8 == 0 {
            let began = Instant::now();
            let reply = owner.reply();
            took = if number <= 3 { began.elapsed() } else { (took + began.elapsed()) / 2 };
            reply
        } else {
            let until = Duration::from_micros(chance.below(took.as_micros() as u64));
            let early = owner.replies.recv_timeout(until).ok();
            let told = owner.kill();
            let told = early.or(told);
            killed += 1;
            in_the_middle += usize::from(told.is_none());
            check(&project, &files, path, &made, told.as_deref(), &about);
            left += on_disk(&project).1;
            owner = FileOwner::new(folder.path());
            owner.ask(&batch);
            let reply = owner.reply();
            assert!(told.is_none_or(|told| told == reply), "{about}: what was told once stays so");
            reply
        };
        let won = winner(&reply, &about);
        let hash = reply[won]["outcome"]["value"]["hash"].as_str().expect("a hash").to_string();
        files.insert(path, (made[won].clone(), hash));
        check(&project, &files, path, &[], Some(&reply), &about);
    }
    let (_, unfinished) = on_disk(&project);
    eprintln!(
        "{killed} kills, {in_the_middle} of them before the answer; {left} unfinished files, {unfinished} left at the end"
    );
    assert_eq!(unfinished, 0, "the same call removes what the killed process left");
}

/// Every file has a content that it may have: the changed one that of its reply, or the old or a new one if there is no reply.
fn check(
    project: &Path,
    files: &BTreeMap<&'static str, (String, String)>,
    path: &str,
    made: &[String],
    told: Option<&[Value]>,
    about: &str,
) {
    let (found, _) = on_disk(project);
    let mut expected: BTreeSet<Option<&str>> = made.iter().map(|content| Some(content.as_str())).collect();
    match told {
        Some(reply) if !made.is_empty() => {
            expected = BTreeSet::from([Some(made[winner(reply, about)].as_str())])
        }
        _ => drop(expected.insert(files.get(path).map(|(content, _)| content.as_str()))),
    }
    let now = found.get(path).map(String::as_str);
    let short = |content: Option<&str>| {
        content.map(|content| (content.len(), content.lines().last().map(str::to_string)))
    };
    assert!(
        expected.contains(&now),
        "{about}: {:?} is none of {:?}",
        short(now),
        expected.into_iter().map(short).collect::<Vec<_>>()
    );
    for (other, (content, _)) in files.iter().filter(|(other, _)| **other != path) {
        assert_eq!(found.get(*other), Some(content), "{about}: {other} is as it was");
    }
    let known: BTreeSet<&str> = files.keys().copied().chain([path]).collect();
    assert!(found.keys().all(|path| known.contains(path.as_str())), "{about}: {:?}", found.keys());
}
