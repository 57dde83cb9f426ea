//! Attaching bytes to a call: stored once, named once, and the same again on replay.

use super::{Misuse, StepError};
use crate::artifacts::{Artifact, ArtifactError, ArtifactWriter, Content, Keeping, check_media_type};
use crate::tool::{Cx, ToolError};
use windlass_core::failure::FailureClass;
use windlass_core::operation::Did;
use windlass_core::outcome::Kept;

/// Bytes that are attached as they come. See [`Cx::attachment`].
pub struct Attachment {
    cx: Cx,
    name: String,
    media_type: String,
    writer: ArtifactWriter,
    /// Whether this is recorded in this try of the call, so that the bytes are only compared.
    is_recorded: bool,
}

impl Cx {
    /// Keeps bytes of this media type as an artifact of the session. It is durable when this returns; equal bytes are stored
    /// once. A replay is told the artifact of the first run, and what is attached under a name in one try of the call is the
    /// same each time.
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

    /// The same for bytes that come one after the other and need not lie in memory together.
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

    /// Ends the attachment, and names it.
    pub async fn finish(mut self) -> Result<Artifact, StepError> {
        let media_type = self.media_type.clone();
        let content = self.writer.content(&media_type);
        let kept = match self.cx.book().attached(&self.name, &content.text())? {
            Some(kept) => kept,
            None => self.record(&content).await?,
        };
        Ok(Artifact { kept, media_type })
    }

    /// Stores what is not stored yet, together with the fact that it is attached.
    async fn record(&mut self, content: &Content<'_>) -> Result<Kept, StepError> {
        let Attachment { cx, name, writer, .. } = self;
        let lane = cx.artifacts.lane();
        let mut keeping = lane.keeping().lock().await;
        if keeping.is_unsettled {
            // Whatever was sent is durable before this.
            lane.commit_rows(Vec::new()).await.map_err(StepError::Lost)?;
        }
        let mut closed = writer.close(content).await.map_err(|error| refused(name, error))?;
        let did = Did::Attached { content: content.text(), kept: closed.kept };
        *keeping = Keeping { is_unsettled: true };
        cx.book().note_with(cx.now(), (name, did), std::mem::take(&mut closed.rows))?;
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
