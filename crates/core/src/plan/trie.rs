//! Who stands before whom: a tree of name levels with queues at each node.
//!
//! A claim stands in the queues of every node on the way to its name: at the name itself as [`Way::Read`] or
//! [`Way::Write`], above it as [`Way::ReadBelow`] or [`Way::WriteBelow`]. Two claims collide exactly if they meet at
//! a node in ways that exclude each other, so nobody is ever compared with everybody: a place is clear once, at each
//! of its nodes, nothing that excludes it is older. Each node has one queue per way, in order of age; what is
//! clear is always the front of a queue, so each step of a queue is taken once.

use super::slab::{NONE, Slab};
use crate::claim::{Claim, Mode, Name};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

/// The queues of all names that can collide: those of a session, of the calls inside one call, or of all sessions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    /// The node of the session, above all names but the global ones.
    session: u32,
    /// The node above the global names; nothing but [`Wanted::Everything`] claims it.
    global: u32,
}

/// What a place is for.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// These claims.
    Claims(&'a [Claim]),
    /// Those of them that hold across sessions.
    Globals(&'a [Claim]),
    /// Whatever can be claimed: it is not known yet.
    Everything,
}

/// Who wants a place: the number that [`Trie`] gives back, and its age.
#[derive(Clone, Copy)]
pub(super) struct Who {
    pub(super) owner: u32,
    pub(super) age: u64,
}

/// What stands in the way of a place.
pub(super) struct Blocked {
    /// Whose place is the oldest of those that exclude it.
    pub(super) by: u32,
    /// The name at which they meet, as text; empty for the session.
    pub(super) at: String,
}

#[derive(Debug, Default)]
pub(super) struct Trie {
    nodes: Slab<Node>,
    requests: Slab<Request>,
    places: Slab<Place>,
}

#[derive(Debug, Default)]
struct Place {
    owner: u32,
    /// The last of its requests, which leads to the others.
    request: u32,
    /// How many of them are not clear.
    unclear: u32,
    age: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Request {
    node: u32,
    place: u32,
    older: u32,
    younger: u32,
    /// The next one of the same place.
    next: u32,
    age: u64,
    way: Way,
    clear: bool,
}

#[derive(Debug)]
struct Node {
    above: u32,
    /// By the hash of the level's text: whole texts are compared only to tell twins apart.
    below: BTreeMap<u64, u32>,
    hash: u64,
    text: Box<str>,
    /// The next node above which the hash is the same.
    twin: u32,
    queues: [Queue; 4],
    /// Requests at it and nodes below it.
    uses: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    oldest: u32,
    youngest: u32,
    /// The oldest that is not clear.
    unclear: u32,
}

/// How a claim uses a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// It reads something below.
    #[default]
    ReadBelow,
    /// It writes something below.
    WriteBelow,
    /// It reads all of it.
    Read,
    /// It writes all of it.
    Write,
}

impl Way {
    /// What must not be there at the same time; if one excludes the other, so does the other the one.
    fn excludes(self) -> &'static [Way] {
        match self {
            Way::ReadBelow => &[Way::Write],
            Way::WriteBelow => &[Way::Read, Way::Write],
            Way::Read => &[Way::WriteBelow, Way::Write],
            Way::Write => &[Way::ReadBelow, Way::WriteBelow, Way::Read, Way::Write],
        }
    }

    fn of(mode: Mode) -> (Way, Way) {
        match mode {
            Mode::Read => (Way::ReadBelow, Way::Read),
            Mode::Write => (Way::WriteBelow, Way::Write),
        }
    }
}

impl Space {
    pub(super) const EMPTY: Space = Space { session: NONE, global: NONE };

    /// How many nodes it has while nothing is claimed in it.
    pub(super) fn roots(&self) -> usize {
        [self.session, self.global].iter().filter(|root| **root != NONE).count()
    }
}

impl Trie {
    /// Takes a place behind all that are older. There is none, [`NONE`], where nothing is wanted.
    pub(super) fn enter(&mut self, space: &mut Space, wanted: Wanted<'_>, who: Who) -> u32 {
        let place = self.places.insert(Place { owner: who.owner, request: NONE, unclear: 0, age: who.age });
        self.request_all(space, wanted, place);
        if self.places[place].request == NONE {
            self.places.remove(place);
            return NONE;
        }
        place
    }

    /// Gives a place up; whose places are clear because of it is added to `cleared`.
    pub(super) fn leave(&mut self, place: u32, cleared: &mut Vec<u32>) {
        if place != NONE {
            let request = self.places.remove(place).request;
            self.withdraw_all(request, cleared);
        }
    }

    /// Changes what a place is for to something that lies within what it was for, so that nobody younger who is
    /// clear can be in its way. The new place is of the same age; [`NONE`] if nothing is wanted any more.
    pub(super) fn narrow(
        &mut self,
        (space, old): (&mut Space, u32),
        wanted: Wanted<'_>,
        cleared: &mut Vec<u32>,
    ) -> u32 {
        let Place { owner, age, .. } = self.places[old];
        // The new before the old goes, so that nobody in between finds the way free.
        let new = self.enter(space, wanted, Who { owner, age });
        let mut at = if new == NONE { NONE } else { self.places[new].request };
        while at != NONE {
            let Request { node, way, next, .. } = self.requests[at];
            self.obscure(node, way, age);
            at = next;
        }
        self.leave(old, cleared);
        new
    }

    /// Whether nothing older is in the way.
    pub(super) fn is_clear(&self, place: u32) -> bool {
        place == NONE || self.places[place].unclear == 0
    }

    /// What is in the way of a place that is not clear.
    pub(super) fn blocked(&self, place: u32) -> Option<Blocked> {
        if place == NONE {
            return None;
        }
        let mut at = self.places[place].request;
        while at != NONE {
            let request = &self.requests[at];
            if !request.clear {
                let older = self.oldest_excluded(request.node, request.way)?;
                let by = self.places[self.requests[older].place].owner;
                return Some(Blocked { by, at: self.path(request.node) });
            }
            at = request.next;
        }
        None
    }

    /// Forgets a space in which there is no place any more.
    pub(super) fn close(&mut self, space: Space) {
        for root in [space.session, space.global] {
            if root != NONE {
                self.nodes.remove(root);
            }
        }
    }

    /// How many nodes, requests and places there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() + self.requests.len() + self.places.len()
    }

    fn request_all(&mut self, space: &mut Space, wanted: Wanted<'_>, place: u32) {
        match wanted {
            Wanted::Claims(claims) => {
                for claim in claims {
                    self.request_claim(space, claim, place);
                }
            }
            Wanted::Globals(claims) => {
                for claim in claims.iter().filter(|claim| claim.name.is_global()) {
                    self.request_claim(space, claim, place);
                }
            }
            Wanted::Everything => {
                for root in [&mut space.session, &mut space.global] {
                    let root = self.root(root);
                    self.request(root, Way::Write, place);
                }
            }
        }
    }

    fn request_claim(&mut self, space: &mut Space, claim: &Claim, place: u32) {
        let root = if claim.name.is_global() { &mut space.global } else { &mut space.session };
        let mut node = self.root(root);
        let (below, at) = Way::of(claim.mode);
        if claim.name != Name::SESSION {
            for level in claim.name.levels() {
                self.request(node, below, place);
                node = self.child(node, level);
            }
        }
        self.request(node, at, place);
    }

    fn root(&mut self, root: &mut u32) -> u32 {
        if *root == NONE {
            *root = self.nodes.insert(Node::default());
        }
        *root
    }

    fn child(&mut self, above: u32, level: &str) -> u32 {
        // Its keys are fixed, so the same texts give the same numbers; nobody finds many texts with one number.
        let mut hasher = DefaultHasher::new();
        hasher.write(level.as_bytes());
        let hash = hasher.finish();
        let first = self.nodes[above].below.get(&hash).copied().unwrap_or(NONE);
        let mut found = first;
        while found != NONE && *self.nodes[found].text != *level {
            found = self.nodes[found].twin;
        }
        if found == NONE {
            let node = Node { above, hash, text: level.into(), twin: first, ..Node::default() };
            found = self.nodes.insert(node);
            let above = &mut self.nodes[above];
            above.below.insert(hash, found);
            above.uses += 1;
        }
        found
    }

    /// Puts a request in its queue by age: at the end, unless a place was narrowed.
    fn request(&mut self, node: u32, way: Way, place: u32) {
        let Place { age, request: next, .. } = self.places[place];
        let mut older = self.nodes[node].queues[way as usize].youngest;
        while older != NONE && self.requests[older].age > age {
            older = self.requests[older].older;
        }
        // Several claims of one call go the same way down.
        if older != NONE && self.requests[older].place == place {
            return;
        }
        let clear = self.oldest_excluded(node, way).is_none_or(|oldest| self.requests[oldest].age >= age);
        let queue = &mut self.nodes[node].queues[way as usize];
        let younger = if older == NONE { queue.oldest } else { self.requests[older].younger };
        let request = self.requests.insert(Request { node, place, older, younger, next, age, way, clear });
        self.places[place].request = request;
        self.places[place].unclear += u32::from(!clear);
        let queue = &mut self.nodes[node].queues[way as usize];
        match older {
            NONE => queue.oldest = request,
            older => self.requests[older].younger = request,
        }
        match younger {
            NONE => queue.youngest = request,
            younger => self.requests[younger].older = request,
        }
        if !clear && (queue.unclear == NONE || queue.unclear == younger) {
            queue.unclear = request;
        }
        self.nodes[node].uses += 1;
    }

    /// Someone of this age came: whoever is younger and was clear of what it excludes is so no more.
    fn obscure(&mut self, node: u32, way: Way, age: u64) {
        for &excluded in way.excludes() {
            let queue = self.nodes[node].queues[excluded as usize];
            let mut at = match queue.unclear {
                NONE => queue.youngest,
                unclear => self.requests[unclear].older,
            };
            while at != NONE && self.requests[at].age > age {
                let request = &mut self.requests[at];
                request.clear = false;
                self.places[request.place].unclear += 1;
                self.nodes[node].queues[excluded as usize].unclear = at;
                at = request.older;
            }
        }
    }

    /// The oldest request at a node that excludes this way.
    fn oldest_excluded(&self, node: u32, way: Way) -> Option<u32> {
        let oldest = way.excludes().iter().map(|&other| self.nodes[node].queues[other as usize].oldest);
        oldest.filter(|&request| request != NONE).min_by_key(|&request| self.requests[request].age)
    }

    fn withdraw_all(&mut self, mut request: u32, cleared: &mut Vec<u32>) {
        while request != NONE {
            let Request { next, node, way, .. } = self.requests[request];
            if self.withdraw(request) {
                for &waiting in way.excludes() {
                    self.clear(node, waiting, cleared);
                }
            }
            self.release(node);
            request = next;
        }
    }

    /// Takes a request out of its queue. `true` if it was the oldest there, so that others may be clear now.
    fn withdraw(&mut self, number: u32) -> bool {
        let Request { node, older, younger, way, .. } = self.requests.remove(number);
        let queue = &mut self.nodes[node].queues[way as usize];
        if queue.unclear == number {
            queue.unclear = younger;
        }
        match younger {
            NONE => queue.youngest = older,
            younger => self.requests[younger].older = older,
        }
        match older {
            NONE => queue.oldest = younger,
            older => self.requests[older].younger = younger,
        }
        older == NONE
    }

    /// Clears what waits this way at a node, as far as nothing older excludes it.
    fn clear(&mut self, node: u32, way: Way, cleared: &mut Vec<u32>) {
        let mut at = self.nodes[node].queues[way as usize].unclear;
        while at != NONE {
            let age = self.requests[at].age;
            if self.oldest_excluded(node, way).is_some_and(|oldest| self.requests[oldest].age < age) {
                break;
            }
            self.requests[at].clear = true;
            let place = &mut self.places[self.requests[at].place];
            place.unclear -= 1;
            if place.unclear == 0 {
                cleared.push(place.owner);
            }
            at = self.requests[at].younger;
        }
        self.nodes[node].queues[way as usize].unclear = at;
    }

    /// A request left this node: nodes that nobody uses any more go.
    fn release(&mut self, mut node: u32) {
        loop {
            self.nodes[node].uses -= 1;
            let Node { uses, above, .. } = self.nodes[node];
            if uses > 0 || above == NONE {
                return;
            }
            let gone = self.nodes.remove(node);
            self.unhook(node, &gone);
            node = above;
        }
    }

    /// Takes a node out of the list of those below the one above it.
    fn unhook(&mut self, number: u32, gone: &Node) {
        let first = self.nodes[gone.above].below.get(&gone.hash).copied().unwrap_or(NONE);
        if first == number {
            match gone.twin {
                NONE => self.nodes[gone.above].below.remove(&gone.hash),
                twin => self.nodes[gone.above].below.insert(gone.hash, twin),
            };
            return;
        }
        let mut before = first;
        while before != NONE && self.nodes[before].twin != number {
            before = self.nodes[before].twin;
        }
        if before != NONE {
            self.nodes[before].twin = gone.twin;
        }
    }

    fn path(&self, mut node: u32) -> String {
        let mut levels: Vec<&str> = Vec::new();
        while self.nodes[node].above != NONE {
            levels.push(&self.nodes[node].text);
            node = self.nodes[node].above;
        }
        levels.reverse();
        levels.join("/")
    }
}

impl Default for Node {
    fn default() -> Node {
        Node {
            above: NONE,
            below: BTreeMap::new(),
            hash: 0,
            text: Box::default(),
            twin: NONE,
            queues: [Queue { oldest: NONE, youngest: NONE, unclear: NONE }; 4],
            uses: 0,
        }
    }
}
