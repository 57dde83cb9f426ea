//! Searching through a folder, with ripgrep's libraries. Names are found by walking; each file is opened by its way from the
//! folder's descriptor, so that no link placed there meanwhile leads out.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use ignore::overrides::OverrideBuilder;
use ignore::{WalkBuilder, WalkState};
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use windlass::sessions::SessionFolder;

/// A search.
pub(super) struct FileSearch<'a> {
    pub(super) pattern: &'a str,
    pub(super) glob: Option<&'a str>,
    pub(super) ignore_case: bool,
    /// Whether hidden and ignored files are searched too.
    pub(super) all: bool,
    pub(super) context: usize,
    /// How many matches to pass over, and how many to show.
    pub(super) offset: usize,
    pub(super) matches_max: usize,
    pub(super) files_max: usize,
    pub(super) levels_max: usize,
    pub(super) path_bytes_max: usize,
    pub(super) is_stopping: &'a (dyn Fn() -> bool + Sync),
}

/// A line of a file that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundLine {
    pub(super) number: u64,
    pub(super) text: String,
    pub(super) is_match: bool,
}

/// The lines found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundFile {
    /// From the folder that was searched.
    pub(super) path: String,
    pub(super) lines: Vec<FoundLine>,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(super) struct FoundMatches {
    pub(super) files: Vec<FoundFile>,
    /// Whether there are more.
    pub(super) more: bool,
    pub(super) searched: usize,
    /// Whether there are more files than were looked at.
    pub(super) too_many_files: bool,
    /// Files that could not be searched.
    pub(super) unreadable: usize,
}

/// A longer line is cut around its match.
const LINE_CHARS_MAX: usize = 300;
/// A longer line is not searched: it would lie in memory.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Threads of one search: others have work too.
const THREADS_MAX: usize = 4;

impl FileSearch<'_> {
    pub(super) fn matcher(&self) -> Result<RegexMatcher, String> {
        RegexMatcherBuilder::new()
            .case_insensitive(self.ignore_case)
            .line_terminator(Some(b'\n'))
            .build(self.pattern)
            .map_err(|error| {
                format!(
                    "the pattern is not a regular expression: {error}; escape what is meant literally with \\"
                )
            })
    }

    /// Searches through a folder.
    pub(super) fn folder(
        &self,
        folder: &SessionFolder,
        matcher: &RegexMatcher,
    ) -> Result<FoundMatches, String> {
        let (mut paths, too_many_files) = self.paths(folder)?;
        // As texts: comparing paths part by part would take longer than searching the files.
        paths.sort_unstable();
        Ok(self.all(folder, matcher, &paths, too_many_files))
    }

    /// Searches one file.
    pub(super) fn file(&self, path: &str, file: &File, matcher: &RegexMatcher) -> FoundMatches {
        let mut found = FoundMatches { searched: 1, ..FoundMatches::default() };
        let mut sink = self.sink(matcher, self.offset + self.matches_max + 1);
        match self.searcher().search_file(matcher, file, &mut sink) {
            Ok(()) => {}
            Err(_) => found.unreadable += 1,
        }
        let file = FoundFile { path: path.to_string(), lines: sink.lines };
        self.cut(vec![file], found)
    }

    /// The files to search, in no order, and whether there are more.
    fn paths(&self, folder: &SessionFolder) -> Result<(Vec<String>, bool), String> {
        let root = folder.path();
        let mut overrides = OverrideBuilder::new(&root);
        if let Some(glob) = self.glob {
            overrides.add(glob).map_err(|error| {
                format!("the glob cannot be used: {error}; write one like *.rs or src/**/*.ts")
            })?;
        }
        let overrides = overrides.build().map_err(|error| format!("the glob cannot be used: {error}"))?;
        let mut walk = WalkBuilder::new(&root);
        walk.standard_filters(!self.all)
            // Files above the folder are none of its business.
            .parents(false)
            .git_global(false)
            .require_git(false)
            .follow_links(false)
            .max_depth(Some(self.levels_max))
            .overrides(overrides)
            .threads(threads());
        let (found, count) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        walk.build_parallel().run(|| {
            let (mut own, root) = (Gathered { paths: Vec::new(), into: &found }, &root);
            let count = &count;
            Box::new(move |entry| {
                let Ok(entry) = entry else { return WalkState::Continue };
                let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
                if is_file
                    && let Ok(below) = entry.path().strip_prefix(root)
                    && let Some(below) = below.to_str().filter(|below| is_shown(below, self.path_bytes_max))
                {
                    own.paths.push(below.to_string());
                    if count.fetch_add(1, Ordering::Relaxed) >= self.files_max {
                        return WalkState::Quit;
                    }
                }
                if (self.is_stopping)() { WalkState::Quit } else { WalkState::Continue }
            })
        });
        let too_many = count.into_inner() > self.files_max;
        Ok((found.into_inner().unwrap_or_else(PoisonError::into_inner), too_many))
    }

    /// Searches files in their order, until there are enough matches.
    fn all(
        &self,
        folder: &SessionFolder,
        matcher: &RegexMatcher,
        paths: &[String],
        too_many_files: bool,
    ) -> FoundMatches {
        let wanted = self.offset + self.matches_max + 1;
        let (next, matches, unreadable) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let found = Mutex::new(Vec::new());
        let work = || {
            let mut searcher = self.searcher();
            // Files are begun in their order and each is searched to its end, so no earlier match is missing at the end.
            while matches.load(Ordering::Relaxed) < wanted && !(self.is_stopping)() {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(path) = paths.get(at) else { return };
                let mut sink = self.sink(matcher, wanted);
                let searched = match folder.open(Path::new(path)) {
                    Ok(Some((file, _))) => searcher.search_file(matcher, &file, &mut sink).is_ok(),
                    Ok(None) => continue,
                    Err(_) => false,
                };
                unreadable.fetch_add(usize::from(!searched), Ordering::Relaxed);
                if sink.matches > 0 {
                    matches.fetch_add(sink.matches, Ordering::Relaxed);
                    let file = FoundFile { path: path.clone(), lines: sink.lines };
                    found.lock().unwrap_or_else(PoisonError::into_inner).push((at, file));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads().min(paths.len()) {
                scope.spawn(work);
            }
            work();
        });
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_unstable_by_key(|(at, _)| *at);
        let searched = next.into_inner().min(paths.len());
        let unreadable = unreadable.into_inner();
        let told = FoundMatches { too_many_files, searched, unreadable, ..FoundMatches::default() };
        self.cut(found.into_iter().map(|(_, file)| file).collect(), told)
    }

    fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(LINE_BYTES_MAX))
            .before_context(self.context)
            .after_context(self.context)
            .build()
    }

    fn sink<'m>(&self, matcher: &'m RegexMatcher, wanted: usize) -> LineSink<'m> {
        LineSink { matcher, wanted, matches: 0, lines: Vec::new() }
    }

    /// The matches from the offset on.
    fn cut(&self, files: Vec<FoundFile>, mut found: FoundMatches) -> FoundMatches {
        let mut passed = 0;
        for mut file in files {
            let (mut kept, mut around) = (Vec::new(), Vec::new());
            for line in file.lines {
                passed += usize::from(line.is_match);
                if passed > self.offset + self.matches_max {
                    found.more = true;
                    break;
                }
                match (line.is_match, passed > self.offset) {
                    (true, false) => around.clear(),
                    (false, false) => around.push(line),
                    (_, true) => {
                        // Lines before the first match that is shown.
                        kept.append(&mut around);
                        kept.push(line);
                    }
                }
            }
            if kept.iter().any(|line| line.is_match) {
                file.lines = kept;
                found.files.push(file);
            }
            if found.more {
                break;
            }
        }
        found
    }
}

/// The paths that one thread found; handed over when it is done.
struct Gathered<'a> {
    paths: Vec<String>,
    into: &'a Mutex<Vec<String>>,
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        self.into.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.paths);
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// Whether the other tools can name the file, so that it may be shown.
fn is_shown(path: &str, bytes_max: usize) -> bool {
    let is_unfinished = path.split('/').any(|part| part.starts_with(".windlass-"));
    path.len() <= bytes_max && !is_unfinished && !path.contains('\\') && !path.chars().any(char::is_control)
}

/// Takes the lines of one file.
struct LineSink<'m> {
    matcher: &'m RegexMatcher,
    wanted: usize,
    matches: usize,
    lines: Vec<FoundLine>,
}

impl LineSink<'_> {
    fn push(&mut self, number: Option<u64>, bytes: &[u8], is_match: bool) {
        self.lines.push(FoundLine {
            number: number.unwrap_or(0),
            text: cut_line(bytes, self.matcher, is_match),
            is_match,
        });
    }
}

impl Sink for LineSink<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, std::io::Error> {
        self.matches += 1;
        self.push(found.line_number(), found.bytes(), true);
        Ok(self.matches < self.wanted)
    }

    fn context(&mut self, _: &Searcher, around: &SinkContext<'_>) -> Result<bool, std::io::Error> {
        self.push(around.line_number(), around.bytes(), false);
        Ok(true)
    }
}

/// The line as it is shown: around its match if it is long.
fn cut_line(bytes: &[u8], matcher: &RegexMatcher, is_match: bool) -> String {
    use grep_matcher::Matcher;
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if bytes.len() <= LINE_CHARS_MAX {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let at = match is_match {
        true => matcher.find(bytes).ok().flatten().map_or(0, |found| found.start()),
        false => 0,
    };
    let mut from = at.saturating_sub(LINE_CHARS_MAX / 3);
    let mut to = bytes.len().min(from + LINE_CHARS_MAX);
    while from > 0 && bytes[from] & 0xc0 == 0x80 {
        from -= 1;
    }
    while to < bytes.len() && bytes[to] & 0xc0 == 0x80 {
        to += 1;
    }
    let (before, after) = (if from > 0 { "…" } else { "" }, if to < bytes.len() { "…" } else { "" });
    format!("{before}{}{after}", String::from_utf8_lossy(&bytes[from..to]))
}
