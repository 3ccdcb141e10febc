// What uploads need to resume in a later visit of the page.
const resume = (() => {
  'use strict';
  // Remembers uploads from one visit of the page to the next: the URL of each, and the checksum of
  // all parts that were begun. Without storage they are not resumed.
  const memory = {
    get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, url) => { try { localStorage.setItem(key, url); } catch {} },
    remove: (key) => { try { localStorage.removeItem(key); } catch {} },
    keys: () => { try { return Object.keys(localStorage); } catch { return []; } },
  };

  // The checksum of the beginning of a file, which can be extended. Browsers offer digests to
  // scripts only over TLS or on this machine; this one detects accidental changes as well.
  class Checksum {
    constructor(file, isWanted) {
      Object.assign(this, { file, isWanted, end: 0, sums: [0, 0] });
    }

    // Extends it to `end`, the end of the file or a multiple of 4; returns position and sums.
    async to(end) {
      while (this.end < end) {
        const from = this.end;
        const piece = this.file.slice(from, Math.min(from + (1 << 20), end));
        const words = new Uint32Array(1 << 18);
        new Uint8Array(words.buffer).set(new Uint8Array(await piece.arrayBuffer()));
        if (!this.isWanted()) throw new Error('Not needed any more');
        let [one, other] = this.sums;
        for (const word of words) {
          one = Math.imul(one ^ word, 0x9e3779b1);
          one ^= one >>> 15;
          other = Math.imul((other << 13 | other >>> 19) ^ word, 0x85ebca6b);
        }
        Object.assign(this, { end: from + piece.size, sums: [one, other] });
      }
      return [this.end, ...this.sums].join(' ');
    }
  }

  return { Checksum, memory };
})();
