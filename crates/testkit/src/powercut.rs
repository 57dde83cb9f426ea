//! Power cuts: a file system of its own on a loop device is shut down without flushing its log while a process commits
//! on it, and mounted again. What the process had acknowledged must be there.

use crate::chance::Chance;
use crate::scenario::{
    self, BatchReplyKind, CallReply, ClientReplies, ClientRounds, RunCounts, ScenarioRemains,
};
use crate::shim::parse;
use anyhow::{Context, bail, ensure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use windlass_store::sqlite::Options;
use windlass_store::{Original, SqliteStore, Store};

/// Small, so that it is made and mounted quickly; large enough for many cuts' worth of writes.
const IMAGE_MIB: u64 = 96;
/// The file system is made anew after so many cuts.
const CUTS_PER_IMAGE: u64 = 50;
/// A process that acknowledges nothing for this long hangs.
const FIRST_ANSWER: Duration = Duration::from_secs(60);

/// The rig, mounted.
pub struct PowerCutRig {
    folder: TempDir,
    mounted: bool,
    cuts: u64,
}

/// The result of one cut.
#[derive(Debug, Default)]
pub struct Cut {
    pub left: ScenarioRemains,
    /// Acknowledged calls that were gone; only ever counted where durability is relaxed.
    pub lost: u64,
    pub acknowledged: u64,
}

impl PowerCutRig {
    /// Makes the file system and mounts it; the reason why not, if this machine cannot.
    pub fn new() -> Result<PowerCutRig, String> {
        let rig = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new());
        let mut rig =
            PowerCutRig { folder: rig.map_err(|error| error.to_string())?, mounted: false, cuts: 0 };
        let attempt = (|| {
            std::fs::create_dir(rig.place())?;
            std::fs::write(rig.path("cut.c"), include_str!("powercut/cut.c"))?;
            run(Command::new("cc").arg("-o").arg(rig.path("cut")).arg(rig.path("cut.c")))?;
            rig.format()
        })();
        attempt.map(|()| rig).map_err(|error| format!("{error:#}"))
    }

    /// Lets `worker` commit, cuts the power at a moment of chance, and checks what is left.
    pub async fn cut(&mut self, worker: &Path, mode: &str, chance: &mut Chance) -> anyhow::Result<Cut> {
        if self.cuts > 0 && self.cuts.is_multiple_of(CUTS_PER_IMAGE) {
            self.unmount()?;
            self.format()?;
        }
        self.cuts += 1;
        let data = self.place().join("data");
        let runs = self.path(&format!("runs-{}", self.cuts));
        let told = self.disturb(worker, mode, &data, &runs, chance)?;
        self.unmount()?;
        self.mount()?;
        // Looked at elsewhere, so that whoever still holds a file there does not keep the place mounted.
        let copy = TempDir::new_in(self.folder.path())?;
        if data.exists() {
            for file in std::fs::read_dir(&data)? {
                let file = file?;
                std::fs::copy(file.path(), copy.path().join(file.file_name()))?;
            }
            std::fs::remove_dir_all(&data)?;
        }
        let cut = if mode == "relaxed" {
            relaxed(copy.path(), &told).await
        } else {
            full(copy.path(), &told, &RunCounts::in_file(&runs)?).await?
        };
        std::fs::remove_file(&runs)?;
        Ok(cut)
    }

    /// The output of the process before it was cut off.
    fn disturb(
        &self,
        worker: &Path,
        mode: &str,
        data: &Path,
        runs: &Path,
        chance: &mut Chance,
    ) -> anyhow::Result<Vec<ClientReplies>> {
        let mut child = Command::new(worker)
            .arg(mode)
            .args([data, runs])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (send, first) = std::sync::mpsc::channel();
        let output = child.stdout.take().context("the process has no output")?;
        let reading = std::thread::spawn(move || {
            let (mut told, mut lines) = (String::new(), BufReader::new(output));
            while lines.read_line(&mut told).unwrap_or(0) > 0 {
                // Only the first is waited for.
                let _nobody = send.send(());
            }
            told
        });
        let began = first.recv_timeout(FIRST_ANSWER);
        std::thread::sleep(Duration::from_micros(chance.below(60_000)));
        // A cut stops the program too, so it is stopped first: an fsync that is under way while ext4 is shut down may
        // return success for what is then gone. Measured with a bare loop of pwrite and fdatasync, 60 cuts each: 33 of
        // 9,348 acknowledged writes lost without this, 0 of 11,335 with it.
        run(Command::new("kill").arg("-STOP").arg(child.id().to_string()))?;
        until_stopped(child.id())?;
        let cut = run(Command::new(self.path("cut")).arg(self.place()));
        // Dead or about to be: the process is where its disk is.
        child.kill()?;
        child.wait()?;
        let told = reading.join().unwrap_or_default();
        cut?;
        ensure!(began.is_ok(), "the process acknowledged nothing");
        Ok(parse(&told))
    }

    fn format(&mut self) -> anyhow::Result<()> {
        let image = self.path("image");
        let file = std::fs::File::create(&image)?;
        file.set_len(IMAGE_MIB << 20)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        self.mount()
    }

    fn mount(&mut self) -> anyhow::Result<()> {
        run(Command::new("mount")
            .args(["-t", "ext4", "-o", "loop"])
            .arg(self.path("image"))
            .arg(self.place()))?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> anyhow::Result<()> {
        run(Command::new("umount").arg(self.place()))?;
        self.mounted = false;
        Ok(())
    }

    fn place(&self) -> PathBuf {
        self.path("mounted")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for PowerCutRig {
    fn drop(&mut self) {
        if self.mounted && self.unmount().is_err() {
            drop(run(Command::new("umount").arg("-l").arg(self.place())));
        }
    }
}

/// Waits until a process that was told to stop does. The signal only takes effect once one of its threads has run to see it, and
/// on a busy machine that takes longer than the cut: the others would go on meanwhile, and acknowledge what is gone. Once one of
/// them stands, none comes back from the kernel any more.
pub(crate) fn until_stopped(process: u32) -> anyhow::Result<()> {
    let stands = |stat: &str| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'));
    loop {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).context("the process is gone")?;
        let mut stats =
            threads.flatten().flat_map(|thread| std::fs::read_to_string(thread.path().join("stat")));
        if stats.any(|stat| stands(&stat)) {
            return Ok(());
        }
        std::thread::yield_now();
    }
}

/// Nothing acknowledged may be lost, and the work can go on.
async fn full(data: &Path, told: &[ClientReplies], runs: &RunCounts) -> anyhow::Result<Cut> {
    let told: Vec<ClientReplies> =
        told.iter().filter(|told| matches!(told.reply, BatchReplyKind::Answered(_))).cloned().collect();
    let store = SqliteStore::open(Options::new(data)).context("afterwards the folder does not open")?;
    // What the rig looks at elsewhere is the folder itself, not a second one.
    store.own_file(Original::Gone).await?;
    let left = scenario::check(Arc::new(store), &asked(&told), &told, runs).await?;
    Ok(Cut { acknowledged: left.acknowledged, left, lost: 0 })
}

/// How much was lost: that something is, shows that the rig cuts.
async fn relaxed(data: &Path, told: &[ClientReplies]) -> Cut {
    let answers = told.iter().flat_map(|told| match &told.reply {
        BatchReplyKind::Answered(answers) => answers.iter().map(|answer| (told, answer)).collect(),
        BatchReplyKind::Failed { .. } | BatchReplyKind::Hung => Vec::new(),
    });
    let answers: Vec<(&ClientReplies, &CallReply)> = answers.collect();
    let recorded = match SqliteStore::open(Options::new(data)) {
        Ok(store) => scenario::recorded(&(Arc::new(store) as Arc<dyn Store>)).await.unwrap_or_default(),
        Err(_) => Default::default(),
    };
    let lost = answers.iter().filter(|(told, answer)| {
        let name = format!("{}/{}/{}", told.session, told.batch, answer.id);
        !recorded.get(&name).is_some_and(|seen| seen.ended && seen.answer == **answer)
    });
    Cut { lost: lost.count() as u64, acknowledged: answers.len() as u64, left: ScenarioRemains::default() }
}

/// The requests of the clients: the answered ones, and the one batch each was waiting for.
pub(crate) fn asked(told: &[ClientReplies]) -> Vec<ClientRounds> {
    (0..scenario::CLIENTS)
        .map(|client| {
            let session = format!("s{client}");
            let answered = told.iter().filter(|told| told.session == session).count() as u64;
            (0..=answered).map(|round| vec![scenario::endless(client, round)]).collect()
        })
        .collect()
}

pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("`{name}` cannot be run"))?;
    if !output.status.success() {
        bail!("`{name}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
