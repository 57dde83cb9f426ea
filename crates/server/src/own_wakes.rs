//! A future whose parts wake each other without waking its task.
//!
//! A request that does its own work is woken by itself: a call that ends wakes whoever waits for it, which is the same task. Tokio
//! answers that with another turn for the task, and wakes a thread that takes it elsewhere. Here it is polled again at once instead.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// So many turns at once; then others have theirs.
const TURNS_MAX: usize = 32;

/// The future, polled again for as long as it wakes itself.
pub(crate) async fn own_wakes<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let wakes = Arc::new(OwnWakes::default());
    let waker = Waker::from(wakes.clone());
    std::future::poll_fn(|cx| wakes.poll(future.as_mut(), &waker, cx)).await
}

/// Tells wakes that come while the future is polled from all others.
#[derive(Default)]
struct OwnWakes {
    is_polled: AtomicBool,
    is_woken: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl OwnWakes {
    fn poll<F: Future>(&self, mut future: Pin<&mut F>, own: &Waker, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.set_task(cx.waker());
        for _ in 0..TURNS_MAX {
            self.is_polled.store(true, Ordering::SeqCst);
            self.is_woken.store(false, Ordering::SeqCst);
            let polled = future.as_mut().poll(&mut Context::from_waker(own));
            // In this order, and a wake in the opposite one: it is seen here, or sees that nobody looks.
            self.is_polled.store(false, Ordering::SeqCst);
            if polled.is_ready() || !self.is_woken.load(Ordering::SeqCst) {
                return polled;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn set_task(&self, waker: &Waker) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }
}

impl Wake for OwnWakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_polled.load(Ordering::SeqCst) {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
            task.iter().for_each(Waker::wake_by_ref);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;

    /// A task that counts its wakes.
    #[derive(Default)]
    struct CountedTask(AtomicUsize);

    impl Wake for CountedTask {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_wakes_itself_is_polled_again_and_its_task_not_woken() {
        let task = Arc::new(CountedTask::default());
        let mut left = 3;
        let work = std::future::poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready("done");
            }
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        let waker = Waker::from(task.clone());
        let polled = pin!(own_wakes(work)).poll(&mut Context::from_waker(&waker));
        assert_eq!((polled, task.0.load(Ordering::SeqCst)), (Poll::Ready("done"), 0));
    }

    #[test]
    fn what_never_rests_lets_others_have_their_turn() {
        let task = Arc::new(CountedTask::default());
        let work = std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        let waker = Waker::from(task.clone());
        assert!(pin!(own_wakes(work)).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(task.0.load(Ordering::SeqCst), 1);
    }

    /// The other thread goes on as soon as a turn has begun, so that most of its wakes come in the middle of one.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_of_another_thread_is_lost() {
        const WAKES: usize = 20_000;
        let (told, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (tells, sees) = (told.clone(), seen.clone());
        let mut other = None;
        own_wakes(std::future::poll_fn(move |cx| {
            seen.store(told.load(Ordering::SeqCst), Ordering::SeqCst);
            let (tells, sees) = (tells.clone(), sees.clone());
            other.get_or_insert_with(|| {
                let waker = cx.waker().clone();
                std::thread::spawn(move || {
                    for no in 1..=WAKES {
                        tells.store(no, Ordering::SeqCst);
                        waker.wake_by_ref();
                        while sees.load(Ordering::SeqCst) < no {
                            std::thread::yield_now();
                        }
                    }
                })
            });
            (0..50).for_each(|_| std::thread::yield_now());
            if seen.load(Ordering::SeqCst) == WAKES { Poll::Ready(()) } else { Poll::Pending }
        }))
        .await;
    }
}
