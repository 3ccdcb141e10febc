//! A queue of bytes between a socket and rustls: added at the end, consumed at the front.
//!
//! Thousands of connections may be idle, so an empty queue owns no memory: it takes a buffer from a
//! small per-thread pool when needed, and returns it once it is empty again.

use std::cell::RefCell;

/// The number of bytes read at once, and the room for the ciphertext of one batch.
pub(in crate::tls) const QUEUE_SIZE: usize = BATCH + 1024;

/// The bytes encrypted for one system call: four full records.
pub(in crate::tls) const BATCH: usize = 64 * 1024;

/// The number of buffers that a thread keeps.
const MAX_KEPT: usize = 4;

thread_local! {
    static STORE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Contiguous bytes.
#[derive(Debug, Default)]
pub(in crate::tls) struct ByteQueue {
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

impl ByteQueue {
    pub(in crate::tls) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(in crate::tls) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(in crate::tls) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    pub(in crate::tls) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.end]
    }

    /// Returns room for at least `min` bytes at the end; report the number used with
    /// [`added`](Self::added).
    pub(in crate::tls) fn room(&mut self, min: usize) -> &mut [u8] {
        if self.memory.len() - self.end < min {
            self.make_room(min);
        }
        &mut self.memory[self.end..]
    }

    fn make_room(&mut self, min: usize) {
        let wanted = self.len() + min;
        if wanted > self.memory.len() {
            let kept = STORE.with_borrow_mut(Vec::pop).filter(|memory| memory.len() >= wanted);
            let mut memory = kept.unwrap_or_else(|| vec![0; wanted.max(QUEUE_SIZE)]);
            memory[..self.len()].copy_from_slice(self.bytes());
            (self.start, self.end) = (0, self.len());
            put_back(std::mem::replace(&mut self.memory, memory));
        } else {
            self.memory.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.len());
        }
    }

    /// Notes that `len` bytes were written to the room.
    pub(in crate::tls) fn added(&mut self, len: usize) {
        self.end += len;
        debug_assert!(self.end <= self.memory.len());
    }

    /// Adds bytes.
    pub(in crate::tls) fn add(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.added(bytes.len());
    }

    /// Drops `len` bytes at the front.
    pub(in crate::tls) fn consume(&mut self, len: usize) {
        self.start += len;
        debug_assert!(self.start <= self.end);
        if self.is_empty() {
            self.clear();
        }
    }

    /// Drops all but `len` bytes at the front.
    pub(in crate::tls) fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
        if self.is_empty() {
            self.clear();
        }
    }

    /// Drops all bytes.
    pub(in crate::tls) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
        put_back(std::mem::take(&mut self.memory));
    }

    /// Frees unused memory before a wait.
    pub(in crate::tls) fn shrink(&mut self) {
        if self.memory.len() > 2 * self.len() {
            let held = self.bytes().to_vec();
            put_back(std::mem::replace(&mut self.memory, held));
            (self.start, self.end) = (0, self.memory.len());
        }
    }
}

impl Drop for ByteQueue {
    fn drop(&mut self) {
        put_back(std::mem::take(&mut self.memory));
    }
}

/// Keeps memory for the next queue of this thread.
fn put_back(memory: Vec<u8>) {
    if memory.len() < QUEUE_SIZE || memory.len() > 2 * QUEUE_SIZE {
        return;
    }
    // The pool no longer exists while a thread ends.
    let _ = STORE.try_with(|store| {
        let mut store = store.borrow_mut();
        if store.len() < MAX_KEPT {
            store.push(memory);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_the_queue_as_they_entered() {
        let mut queue = ByteQueue::default();
        let (mut written, mut read) = (0_u32, 0_u32);
        for turn in 0..5000_u32 {
            for _ in 0..turn % 97 {
                queue.add(&written.to_le_bytes());
                written += 1;
            }
            let whole = queue.len() / 4;
            for _ in 0..whole.min(turn as usize % 89) {
                assert_eq!(queue.bytes()[..4], read.to_le_bytes());
                read += 1;
                queue.consume(4);
            }
            if turn % 13 == 0 {
                queue.shrink();
                assert!(queue.memory.len() <= 2 * queue.len());
            }
        }
        assert!(written > read && read > 1000);
        queue.truncate(4);
        assert_eq!(queue.bytes(), read.to_le_bytes());
        queue.consume(4);
        assert_eq!(queue.memory.capacity(), 0, "an empty queue owns nothing");
    }
}
