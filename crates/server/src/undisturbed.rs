//! Work that runs to its end even if its caller disconnects.

use crate::problem::{Problem, ProblemCode};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// Runs work to its end, even if its caller disconnects: nothing is left half done. It runs in the caller's
/// task, and moves to its own task only if the caller leaves.
pub(crate) async fn undisturbed<T: Send + 'static, E: Into<Problem> + Send + 'static>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, Problem> {
    match (Undisturbed { work: Some(Box::pin(work)) }).await {
        Ok(done) => done.map_err(Into::into),
        Err(what) => Err(Problem::new(ProblemCode::Internal, format!("the request panicked: {what}"))),
    }
}

/// Work that outlives its waiter.
struct Undisturbed<F: Future<Output: Send> + Send + 'static> {
    work: Option<Pin<Box<F>>>,
}

impl<F: Future<Output: Send> + Send + 'static> Future for Undisturbed<F> {
    /// The message of a panic, if it panicked.
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<F::Output, String>> {
        let Some(mut work) = self.work.take() else { return Poll::Ready(Err("it is over".to_string())) };
        // A panic ends the request with an error; the connection stays open.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(panic) => Poll::Ready(Err(message(&*panic))),
            Ok(Poll::Pending) => {
                self.work = Some(work);
                Poll::Pending
            }
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Undisturbed<F> {
    fn drop(&mut self) {
        if let (Some(work), Ok(tokio)) = (self.work.take(), Handle::try_current()) {
            tokio.spawn(work);
        }
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    fn boxed<T: Send + 'static>(
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Pin<Box<impl Future<Output = Result<T, Problem>>>> {
        Box::pin(undisturbed(work))
    }

    #[tokio::test]
    async fn what_is_left_in_the_middle_goes_on() {
        let ((go, goes), (end, ended)) = (oneshot::channel::<()>(), oneshot::channel());
        let mut asked = boxed(async move {
            let went = goes.await.is_ok();
            let _ = end.send(went);
            Ok(())
        });
        tokio::select! {
            biased;
            _ = &mut asked => panic!("it waits"),
            () = async {} => {}
        }
        drop(asked);
        go.send(()).expect("it still waits");
        assert!(ended.await.expect("it came to its end"));
    }

    #[tokio::test]
    async fn who_stays_does_it_in_its_own_task() {
        let mine = tokio::spawn(async {
            let own = tokio::task::id();
            let done = boxed(async move {
                tokio::task::yield_now().await;
                Ok(tokio::task::id())
            });
            (own, done.await.expect("it is done"))
        });
        let (own, at_work) = mine.await.expect("no panic");
        assert_eq!(own, at_work);
    }

    #[tokio::test]
    async fn a_panic_is_told_and_goes_no_further() {
        let work: Pin<Box<dyn Future<Output = Result<(), Problem>> + Send>> =
            Box::pin(async { panic!("as it happens") });
        assert_eq!(undisturbed(work).await.expect_err("it panicked").code, ProblemCode::Internal);
    }
}
