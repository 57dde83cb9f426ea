//! Attaching bytes to a call: stored once, named once, and the same again on replay.

use crate::api::data_error::ArtifactError;
use crate::api::misuse::{Misuse, StepError};
use crate::api::output::ToolError;
use crate::session::artifacts::{Artifact, ArtifactWriter, ContentDigest, Keeping, check_media_type};
use crate::session::cx::Cx;
use windlass_core::failure::FailureClass;
use windlass_core::operation::Did;
use windlass_core::outcome::KeptBytes;

/// An attachment written piece by piece. See [`Cx::attachment`].
pub struct Attachment {
    cx: Cx,
    name: String,
    media_type: String,
    writer: ArtifactWriter,
    /// Whether it is recorded in this round of the call, so that the bytes are only compared.
    is_recorded: bool,
}

impl Cx {
    /// Stores bytes of this media type as an artifact of the session. Durable when this returns; equal bytes are stored
    /// once. A replay gets the artifact of the first run, and an attachment under a name must be the same each time in one
    /// round of the call.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn report(_: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let table = cx.attach("table", b"item,sold\ndoor,3\n", "text/csv").await?;
    ///     let parts = vec![table.into_part("sold.csv")];
    ///     Ok(Output { value: json!("Three doors were sold."), parts, ..Output::default() })
    /// }
    /// ```
    pub async fn attach(&self, name: &str, bytes: &[u8], media_type: &str) -> Result<Artifact, StepError> {
        let mut attachment = self.attachment(name, media_type)?;
        attachment.write(bytes).await?;
        attachment.finish().await
    }

    /// Starts an attachment that is written piece by piece and need not fit in memory.
    pub fn attachment(&self, name: &str, media_type: &str) -> Result<Attachment, StepError> {
        check_media_type(media_type, self.limits()).map_err(|error| refused(name, error))?;
        let is_recorded = self.book().begin_attachment(name, self.limits().operations_max)?;
        Ok(Attachment {
            cx: self.clone(),
            name: name.to_string(),
            media_type: media_type.to_string(),
            writer: self.keep(),
            is_recorded,
        })
    }
}

impl Attachment {
    /// Adds bytes to the end.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), StepError> {
        let written =
            if self.is_recorded { self.writer.count(bytes) } else { self.writer.write(bytes).await };
        written.map_err(|error| refused(&self.name, error))
    }

    /// Ends the attachment, and returns its artifact.
    pub async fn finish(mut self) -> Result<Artifact, StepError> {
        let rest = if self.is_recorded { self.writer.count_rest() } else { self.writer.write_rest().await };
        rest.map_err(|error| refused(&self.name, error))?;
        let media_type = self.media_type.clone();
        let content = self.writer.content(&media_type);
        let kept = match self.cx.book().attached(&self.name, &content.text())? {
            Some(kept) => kept,
            None => self.record(&content).await?,
        };
        Ok(Artifact { kept, media_type })
    }

    /// Stores the remaining pieces, together with the fact that the artifact is attached.
    async fn record(&mut self, content: &ContentDigest<'_>) -> Result<KeptBytes, StepError> {
        let Attachment { cx, name, writer, .. } = self;
        let lane = cx.artifacts.lane();
        let mut keeping = lane.keeping().lock().await;
        if keeping.is_unsettled {
            // Everything sent is durable before this.
            lane.commit_rows(Vec::new()).await.map_err(StepError::Lost)?;
        }
        let mut closed = writer.close(content).await.map_err(|error| refused(name, error))?;
        let did = Did::Attached { content: content.text(), kept: closed.kept };
        *keeping = Keeping { is_unsettled: true };
        cx.book().note_with(cx.now(), name, did, std::mem::take(&mut closed.rows))?;
        cx.commit().await?;
        *keeping = Keeping::default();
        drop(keeping);
        writer.discard(&closed).await;
        Ok(closed.kept)
    }
}

fn refused(name: &str, error: ArtifactError) -> StepError {
    match error {
        ArtifactError::Lost(lost) => StepError::Lost(lost),
        ArtifactError::MediaType { .. } => StepError::Misused(Misuse::unkept(name, error)),
        ArtifactError::TooLarge { .. } => {
            let class = FailureClass::ResourceLimit;
            StepError::Failed(ToolError { class, ..ToolError::new(error.to_string()) })
        }
        ArtifactError::Unknown { .. } => StepError::Failed(ToolError::new(error.to_string())),
    }
}
