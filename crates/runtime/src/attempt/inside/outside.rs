//! Bodies that are not put aside and wait for external answers: other calls of their sessions continue meanwhile.

use crate::session::cx::Cx;
use crate::session::turns::Turns;

/// A body's wait for an external answer, until dropped. Others may have the default claims of its call meanwhile.
pub(super) struct OutsideWait<'a> {
    cx: &'a Cx,
    is_over: bool,
}

impl<'a> OutsideWait<'a> {
    /// Begins the wait, unless it is over already, or the body does something else that needs its call's claims.
    pub(super) fn begin(cx: &'a Cx, name: &str) -> OutsideWait<'a> {
        let waits = !cx.is_put_aside && !cx.book().is_over(name, cx.now()) && cx.book().only_waits();
        if let Some(hold) = cx.hold.upgrade().filter(|_| waits) {
            cx.book().set_outside(true);
            let is_left_alone = cx.batch.is_left_alone();
            Turns::step_outside(&hold.rt, cx.call, is_left_alone);
        }
        OutsideWait { cx, is_over: false }
    }

    /// Continues once the call has its claims again.
    pub(super) async fn end(mut self) {
        self.is_over = true;
        self.cx.come_back_inside().await;
    }
}

impl Drop for OutsideWait<'_> {
    fn drop(&mut self) {
        // The body no longer waits and continues at once, or is over.
        if !self.is_over
            && self.cx.book().set_outside(false)
            && let Some(hold) = self.cx.hold.upgrade()
        {
            drop(Turns::come_back_inside(&hold.rt, self.cx.call));
        }
    }
}

impl Cx {
    /// Waits until the call has its claims, if it gave them up for an external wait.
    pub(crate) async fn come_back_inside(&self) {
        if self.is_put_aside || !self.book().set_outside(false) {
            return;
        }
        let back = self.hold.upgrade().and_then(|hold| Turns::come_back_inside(&hold.rt, self.call));
        if let Some(back) = back {
            let _ = back.await;
        }
    }
}
