//! Images that are kept as artifacts, loaded for the messages of a turn.

use crate::problem::Problem;
use windlass::Runtime;
use windlass::outcome::{ModelAnswer, Part};

/// The room for images in the messages of one turn.
pub(crate) struct ImageRoom<'a> {
    runtime: &'a Runtime,
    bytes_left: u64,
}

impl ImageRoom<'_> {
    pub(crate) fn new(runtime: &Runtime) -> ImageRoom<'_> {
        ImageRoom { runtime, bytes_left: runtime.limits().wire_images_bytes_max }
    }

    /// The answer with the bytes of its kept images, as far as there is room; wires name the others in text.
    pub(crate) async fn load(&mut self, mut answer: ModelAnswer) -> Result<ModelAnswer, Problem> {
        for part in &mut answer.parts {
            let Part::KeptImage { kept, media_type } = part else { continue };
            if !Part::is_image(media_type) || kept.bytes > self.bytes_left {
                continue;
            }
            // An artifact that has expired stays a name.
            let Some(info) = self.runtime.artifact(kept.artifact).await? else { continue };
            let data = self.runtime.read_artifact(kept.artifact, 0, info.bytes.min(self.bytes_left)).await?;
            self.bytes_left -= data.len() as u64;
            *part = Part::Image { media_type: media_type.clone(), data: data.into() };
        }
        Ok(answer)
    }
}
