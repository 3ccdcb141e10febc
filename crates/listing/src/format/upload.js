// Uploads files and folders, several at once. Large files use the resumable protocol
// (draft-ietf-httpbis-resumable-upload), so that a lost connection, a pause or a reload of the page
// repeats nothing that the server already has.
(() => {
  'use strict';
  const {
    address, ask, element, folder, hasStopped, main, readable, reason, refresh, request, noAnswer, size,
    visible,
  } = page;
  const { Checksum, memory } = resume;
  const AT_ONCE = 3;
  // Up to this size, a file is sent in one request and restarted after a failure.
  const SMALL = 1 << 20;
  // The longest request, because of proxies that limit them.
  const SLICE = 64 << 20;
  const STALLED_MS = 60_000;
  const MOST_TRIES = 8;
  // For a file whose folder is missing.
  const MOST_MISPLACED_TRIES = 2;
  // The most lines of finished uploads.
  const MOST_LINES = 200;
  // The most failures listed for a dropped folder.
  const MOST_FAULTS = 5;

  const bar = document.querySelector('.change');
  const panel = document.getElementById('uploads');
  const list = panel.querySelector('ul');
  const total = document.getElementById('total');
  const action = (name) => document.querySelector(`[data-do=${name}]`);

  const time = (seconds) => seconds < 60 ? `${Math.ceil(seconds)} s`
    : seconds < 3600 ? `${Math.ceil(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;

  const KEY = 'upload ';

  class Fault extends Error {
    constructor(message, status = 0) {
      super(message);
      this.status = status;
    }
    // Whether a retry may succeed. 409 is an offset that the server does not have.
    get passes() {
      return [0, 404, 408, 409, 423, 429, 500, 502, 503, 504].includes(this.status);
    }
  }

  // Makes the server discard an upload, which would otherwise expire.
  const discard = (url) => request('DELETE', url).then(() => null, () => null);

  // Returns the offset of an upload; null if the server does not know it (any more).
  const offsetOf = async (url) => {
    try {
      const response = await request('HEAD', url);
      return Number(response.headers.get('Upload-Offset'));
    } catch (error) {
      if (error.status === 404 || error.status === 410) return null;
      throw new Fault(error.message, error.status);
    }
  };

  // Folders that exist or are being created.
  const made = new Map();
  const makeFolder = (path) => {
    if (path === '') return Promise.resolve();
    if (!made.has(path)) {
      const parent = path.slice(0, Math.max(0, path.lastIndexOf('/')));
      const making = makeFolder(parent).then(() => request('MKCOL', address(path + '/')))
        .catch((error) => {
          // It already exists.
          if (error.status === 405) return;
          made.delete(path);
          throw new Fault(error.message, error.status);
        });
      made.set(path, making);
    }
    return made.get(path);
  };

  // Asks whether a file may be replaced, one question at a time.
  let forAll = null;
  let asking = Promise.resolve();
  const mayReplace = (path) => (asking = asking.then(async () => {
    if (forAll) return forAll === 'replace';
    const answer = await ask({
      title: 'Replace this file?',
      text: `${visible(path)} already exists.`,
      isOpen: true,
      all: 'Do this for all others',
      choices: [['skip', 'Keep existing file'], ['replace', 'Replace', 'danger']],
    });
    if (answer?.all) forAll = answer.value;
    return answer?.value === 'replace';
  }));

  const waiting = [];
  const running = new Set();
  // Drops that are still being read, from which more files may come.
  const drops = new Set();
  const isIdle = () => !running.size && !waiting.length && !drops.size;
  const count = { all: 0, done: 0, failed: 0, bytes: 0, sent: 0 };

  class Upload {
    constructor(file, path) {
      Object.assign(this, { file, path, name: visible(path), sent: 0, samples: [], state: 'waiting' });
      this.url = address(path);
      this.key = KEY + JSON.stringify([this.url.pathname, file.size, file.lastModified]);
      this.checksum = new Checksum(file, () => this.state === 'running');
      count.all += 1;
      count.bytes += file.size;
    }

    // Creates the line of this upload. Failed uploads are first and finished ones last, because only
    // some lines are visible at once.
    show() {
      if (this.line) return;
      this.bar = element('progress', { max: Math.max(1, this.file.size), value: 0 });
      this.bar.setAttribute('aria-label', `Upload of ${this.name}`);
      this.text = element('span', { className: 'state' });
      this.toggle = element('button', { type: 'button' });
      this.toggle.addEventListener('click', () => this.state === 'running' ? this.pause() : this.resume());
      this.drop = element('button', { type: 'button', textContent: '\u00d7', title: 'Cancel' });
      this.drop.setAttribute('aria-label', `Cancel ${this.name}`);
      this.drop.addEventListener('click', () => this.cancel());
      this.line = element('li', {}, element('bdi', { textContent: this.name }), this.bar,
        this.text, this.toggle, this.drop);
      list.insertBefore(this.line, list.querySelector('[data-state=done]'));
    }

    // Changes the state of this upload and its text.
    become(state, text) {
      this.state = state;
      this.show();
      this.line.dataset.state = state;
      this.text.textContent = text;
      // What is too long would be so each time.
      const label = { running: 'Pause', paused: 'Resume', failed: !this.isTooLong && 'Retry' }[state];
      this.toggle.hidden = !label;
      this.toggle.textContent = label || '';
      this.toggle.setAttribute('aria-label', `${label} ${this.name}`);
      this.drop.hidden = state === 'done' || state === 'skipped';
      if (state === 'done') this.bar.value = this.bar.max;
      summarize();
    }

    // Notes how many bytes were sent or are on the way.
    progress(sent) {
      count.sent += sent - this.sent;
      this.sent = sent;
      const now = performance.now();
      this.moved = now;
      const last = this.samples.at(-1);
      if (last && now - last[0] < 250) return;
      this.samples = [...this.samples.slice(-19), [now, sent]];
      const [since, before] = this.samples[0];
      const rate = now > since ? (sent - before) / (now - since) * 1000 : 0;
      const rest = (this.file.size - sent) / rate;
      const left = rate > 0 ? ` \u00b7 ${size(rate)}/s \u00b7 ${time(rest)} left` : '';
      this.bar.value = sent;
      if (this.state === 'running') {
        this.text.textContent = `${size(sent)} of ${size(this.file.size)}${left}`;
      }
      summarize();
    }

    // Runs until it is done or has failed.
    async run() {
      this.samples = [];
      this.become('running', 'Starting\u2026');
      let misplaced = 0;
      for (let tries = 0; ; tries += 1) {
        const before = this.sent;
        try {
          await makeFolder(this.path.slice(0, Math.max(0, this.path.lastIndexOf('/'))));
          await this.attempt();
          return this.finish('done', size(this.file.size));
        } catch (fault) {
          if (this.state !== 'running') return;
          if (fault.status === 412 && !this.replaces) {
            this.text.textContent = 'A file of this name already exists';
            const isMeant = await mayReplace(this.path);
            if (this.state !== 'running') return;
            if (!isMeant) return this.finish('skipped', 'Existing file kept');
            this.replaces = true;
            this.forget();
            continue;
          }
          if (this.sent > before) tries = 0;
          // Its folder may have been removed meanwhile, and is created again.
          if (fault.status === 409 && fault.method !== 'PATCH') {
            made.clear();
            misplaced += 1;
          }
          const isLast = tries >= MOST_TRIES || misplaced > MOST_MISPLACED_TRIES;
          if (!fault.passes || isLast) return this.fail(fault);
          await this.rest(Math.min(30, 2 ** tries), fault.message);
          if (this.state !== 'running') return;
        }
      }
    }

    // Ends an attempt that is no longer needed, because it was paused or cancelled meanwhile.
    check() {
      if (this.state !== 'running') throw new Fault('Not needed any more');
    }

    // Waits for some seconds, or until the network is back.
    async rest(seconds, why) {
      this.text.textContent = `${why}; retrying`;
      await new Promise((done) => {
        this.wake = done;
        addEventListener('online', done, { once: true });
        setTimeout(done, seconds * 1000);
      });
    }

    async attempt() {
      const { file } = this;
      const once = this.replaces ? {} : { 'If-None-Match': '*' };
      if (file.size <= SMALL) {
        // The response may have been lost with the connection.
        if (this.isSent && await this.isThere()) return;
        this.isSent = true;
        await this.send('PUT', this.url, file, once, 0);
        return;
      }
      let [url, ...begun] = memory.get(this.key)?.split(' ') ?? [];
      let offset = url ? await offsetOf(url) : null;
      this.check();
      if (offset !== null && !this.isSame) {
        // Another file may have the same length and date.
        this.text.textContent = 'Comparing with what was sent\u2026';
        this.isSame = await this.checksum.to(Number(begun[0])) === begun.join(' ');
        if (!this.isSame) offset = await discard(url);
      }
      if (offset === null) {
        // The response to the last part may have been lost with the connection.
        if (this.isSent && await this.isThere()) return;
        const created = await this.send('PUT', this.url, null,
          { ...once, 'Upload-Complete': '?0', 'Upload-Length': String(file.size) }, 0);
        const location = created.getResponseHeader('Location');
        if (!location) {
          // A proxy passes only plain PUT requests; an empty file exists now.
          this.replaces = true;
          await this.send('PUT', this.url, file, {}, 0);
          return;
        }
        url = new URL(location, this.url).href;
        memory.set(this.key, url);
        this.isSame = true;
        offset = 0;
      }
      this.progress(offset);
      do {
        const end = Math.min((Math.floor(offset / SLICE) + 1) * SLICE, file.size);
        const checksum = await this.checksum.to(end);
        this.check();
        memory.set(this.key, `${url} ${checksum}`);
        this.isSent = end === file.size;
        await this.send('PATCH', url, file.slice(offset, end), {
          'Content-Type': 'application/partial-upload',
          'Upload-Offset': String(offset),
          'Upload-Complete': this.isSent ? '?1' : '?0',
        }, offset);
        offset = end;
      } while (offset < file.size);
      memory.remove(this.key);
    }

    // Whether the file of this name has the same bytes. Its length and date prove nothing: it may
    // be an older version, or another user's file.
    async isThere() {
      this.text.textContent = 'Comparing with the file on the server\u2026';
      const { signal } = this.comparison = new AbortController();
      const watch = this.watch(() => this.comparison.abort());
      try {
        const response = await request('GET', this.url, {}, signal);
        const reader = response.body.getReader();
        let offset = 0;
        for (;;) {
          const { done, value } = await reader.read();
          if (done) return offset === this.file.size;
          this.moved = performance.now();
          const end = offset + value.length;
          const own = new Uint8Array(await this.read(offset, end));
          if (own.length < value.length || own.some((byte, at) => byte !== value[at])) return false;
          offset = end;
        }
      } catch (error) {
        if (error === this.unreadable) throw error;
        // An unreadable file is not known to be the same.
        if (error.status >= 400 && error.status < 500) return false;
        throw new Fault(error.message, error.status);
      } finally {
        clearInterval(watch);
        this.comparison.abort();
      }
    }

    // Reads part of the local file, which may be gone.
    read(from, to) {
      return this.file.slice(from, to).arrayBuffer().catch((error) => {
        this.unreadable = error;
        throw error;
      });
    }

    // Calls `stop` once nothing has moved for too long.
    watch(stop) {
      this.moved = performance.now();
      return setInterval(() => {
        if (performance.now() - this.moved > STALLED_MS) stop();
      }, 1000);
    }

    // Sends one request, whose first byte is at `offset`.
    send(method, url, body, headers, offset) {
      return new Promise((done, failed) => {
        this.check();
        const xhr = this.xhr = new XMLHttpRequest();
        xhr.open(method, url);
        for (const [name, value] of Object.entries(headers)) xhr.setRequestHeader(name, value);
        const watch = this.watch(() => xhr.abort());
        xhr.upload.onprogress = (event) => this.progress(offset + event.loaded);
        xhr.onloadend = () => {
          clearInterval(watch);
          if (xhr.status >= 200 && xhr.status < 300) return done(xhr);
          const told = xhr.status
            ? reason(xhr.status, xhr.getResponseHeader('Content-Type'), xhr.responseText)
            : noAnswer();
          const fault = Object.assign(new Fault(told, xhr.status), { method });
          if (xhr.status) return failed(fault);
          // An unreadable file ends a request in the same way, and would do so each time.
          this.read(0, 1).then(() => failed(fault), failed);
        };
        xhr.send(body);
      });
    }

    pause() {
      this.become('paused', `Paused at ${size(this.sent)} of ${size(this.file.size)}`);
      this.stop();
    }

    resume() {
      count.failed -= this.state === 'failed';
      this.become('waiting', 'Waiting');
      waiting.unshift(this);
      next();
    }

    fail({ message, status }) {
      this.isTooLong = status === 413;
      count.failed += 1;
      this.become('failed', message);
      list.prepend(this.line);
    }

    finish(state, text) {
      count.done += 1;
      count.sent += this.file.size - this.sent;
      this.sent = this.file.size;
      this.forget();
      this.become(state, text);
      list.append(this.line);
      const done = list.querySelectorAll('[data-state=done]');
      if (done.length > MOST_LINES) done[0].remove();
    }

    cancel() {
      const url = memory.get(this.key)?.split(' ')[0];
      count.failed -= this.state === 'failed';
      this.forget();
      this.state = 'cancelled';
      this.stop();
      if (url) discard(url);
      const at = waiting.indexOf(this);
      if (at >= 0) waiting.splice(at, 1);
      count.all -= 1;
      count.bytes -= this.file.size;
      count.sent -= this.sent;
      this.line?.remove();
      summarize();
    }

    stop() {
      this.xhr?.abort();
      this.comparison?.abort();
      this.wake?.();
    }

    forget() {
      memory.remove(this.key);
    }
  }

  // Starts as many uploads as may run at once.
  const next = () => {
    while (running.size < AT_ONCE) {
      // An upload that was paused and resumed quickly may not have stopped yet.
      const at = waiting.findIndex((upload) => !running.has(upload));
      if (at < 0) break;
      const [upload] = waiting.splice(at, 1);
      running.add(upload);
      upload.run().finally(() => {
        running.delete(upload);
        next();
      });
    }
    summarize();
    if (isIdle()) {
      forAll = null;
      made.clear();
      refresh();
    }
  };

  let isStale = false;
  const summarize = () => {
    if (isStale) return;
    isStale = true;
    setTimeout(() => {
      isStale = false;
      panel.hidden = !list.children.length && !waiting.length;
      const isBusy = !isIdle();
      action('cancel').hidden = !isBusy;
      action('clear').hidden = isBusy || !list.querySelector(over);
      const percent = count.bytes ? Math.floor(count.sent / count.bytes * 100) : 100;
      const failed = count.failed ? `, ${count.failed} failed` : '';
      const much = isBusy ? `, ${percent}\u00a0%` : '';
      total.textContent = count.all ? `${count.done} of ${count.all} done${failed}${much}` : '';
    }, 100);
  };

  // Removes the lines of ended uploads; paused and interrupted ones can be resumed.
  const over = '[data-state=done], [data-state=skipped], [data-state=failed]';
  const clear = () => {
    for (const line of list.querySelectorAll(over)) line.remove();
    if (!list.querySelector('[data-state=paused]')) {
      Object.assign(count, { all: 0, done: 0, failed: 0, bytes: 0, sent: 0 });
    }
    summarize();
  };

  // Clears the list before more files are selected or dropped.
  const begin = () => {
    if (isIdle()) clear();
  };

  const add = (file, path) => {
    const upload = new Upload(file, path);
    for (const line of list.querySelectorAll('[data-state=interrupted]')) {
      if (line.dataset.key === upload.key) line.remove();
    }
    waiting.push(upload);
    next();
  };

  // Reads everything in a dropped entry, folders from the top down.
  const read = async (entry, path, drop) => {
    if (entry.isFile) {
      const file = await new Promise((done, failed) => entry.file(done, failed));
      if (drops.has(drop)) add(file, path);
      return;
    }
    await makeFolder(path);
    const reader = entry.createReader();
    for (;;) {
      // Some browsers give a hundred at a time.
      const entries = await new Promise((done, failed) => reader.readEntries(done, failed));
      if (!entries.length) break;
      for (const inner of entries) await walk(inner, `${path}/${inner.name}`, drop);
    }
  };
  // Does the same, but an entry that cannot be read, or created on the server, stops no others.
  const walk = async (entry, path, drop) => {
    if (!drops.has(drop)) return;
    try {
      await read(entry, path, drop);
    } catch (error) {
      drop.faults.push(`${visible(path)}: ${error.message}`);
    }
  };

  const complain = (faults) => ask({
    title: 'Not everything can be uploaded',
    text: element('ul', {},
      ...faults.slice(0, MOST_FAULTS).map((textContent) => element('li', { textContent })),
      ...(faults.length > MOST_FAULTS ? [`and ${faults.length - MOST_FAULTS} more`] : [])),
    isOpen: true,
    choices: [['yes', 'OK']],
  });

  addEventListener('drop', async (event) => {
    if (!event.dataTransfer.types.includes('Files')) return;
    event.preventDefault();
    main.classList.remove('target');
    // Read them now: they are gone once this handler has returned.
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.());
    const files = [...event.dataTransfer.files];
    const drop = { faults: [] };
    begin();
    drops.add(drop);
    for (const [at, entry] of entries.entries()) {
      if (entry) await walk(entry, entry.name, drop);
      else if (files[at]) add(files[at], files[at].name);
    }
    drops.delete(drop);
    // Folders without files have been created by now.
    next();
    if (drop.faults.length) complain(drop.faults);
  });
  let leaving = 0;
  addEventListener('dragover', (event) => {
    if (!event.dataTransfer.types.includes('Files')) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = 'copy';
    main.classList.add('target');
    // No event reports a drag that ends elsewhere.
    clearTimeout(leaving);
    leaving = setTimeout(() => main.classList.remove('target'), 300);
  });

  for (const kind of ['files', 'folder']) {
    const input = document.getElementById(kind);
    action(kind).addEventListener('click', () => input.click());
    input.addEventListener('change', () => {
      begin();
      for (const file of input.files) add(file, file.webkitRelativePath || file.name);
      input.value = '';
    });
  }
  action('clear').addEventListener('click', clear);
  action('cancel').addEventListener('click', () => {
    drops.clear();
    for (const upload of [...waiting, ...running]) upload.cancel();
  });
  addEventListener('beforeunload', (event) => {
    if (!isIdle() || hasStopped()) event.preventDefault();
  });

  // Lists uploads of an earlier visit. The page cannot read their files until the user selects them
  // again.
  const remind = async () => {
    for (const key of memory.keys().filter((key) => key.startsWith(KEY))) {
      const [path, bytes] = JSON.parse(key.slice(KEY.length));
      if (!path.startsWith(folder.pathname)) continue;
      const url = memory.get(key).split(' ')[0];
      const offset = await offsetOf(url).catch(() => undefined);
      if (offset === null) memory.remove(key);
      if (offset === null || offset === undefined) continue;
      const name = visible(readable(path.slice(folder.pathname.length)));
      const drop = element('button', { type: 'button', textContent: '\u00d7', title: 'Discard' });
      drop.setAttribute('aria-label', `Discard ${name}`);
      const bar = element('progress', { max: bytes, value: offset });
      bar.setAttribute('aria-label', `Upload of ${name}`);
      const line = element('li', {}, element('bdi', { textContent: name }), bar,
        element('span', { className: 'state', textContent:
          `Interrupted at ${size(offset)} of ${size(bytes)}: select the same file to resume` }), drop);
      Object.assign(line.dataset, { state: 'interrupted', key });
      drop.addEventListener('click', () => {
        memory.remove(key);
        line.remove();
        discard(url);
        summarize();
      });
      list.append(line);
      summarize();
    }
  };
  bar.hidden = false;
  remind();
})();
