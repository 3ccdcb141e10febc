// What uploads need to go on in another visit of the page.
const resume = (() => {
  'use strict';
  // Where uploads are remembered from one visit of the page to the next: the address of each, and
  // the checksum of all parts that were begun. Without storage they are not resumed.
  const memory = {
    get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, url) => { try { localStorage.setItem(key, url); } catch {} },
    remove: (key) => { try { localStorage.removeItem(key); } catch {} },
    keys: () => { try { return Object.keys(localStorage); } catch { return []; } },
  };

  // The checksum of a file from its beginning to some place, and on from there. Browsers offer digests
  // to scripts only over TLS or on this machine; against mistakes this one is as good.
  class Checksum {
    constructor(file, isWanted) {
      Object.assign(this, { file, isWanted, end: 0, sums: [0, 0] });
    }

    // Goes on to `end`, which is that of the file or a multiple of 4; returns the place and the sums.
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
