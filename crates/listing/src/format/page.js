// The functions that the scripts of the page share.
const page = (() => {
  'use strict';
  const main = document.querySelector('main');
  // A path that begins with two slashes would name another host.
  const folder = new URL(location.origin + location.pathname);

  const element = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  // The URL of a path in this folder. No character of a name has a special meaning in it.
  const address = (path) => new URL(path.split('/').map(encodeURIComponent).join('/'), folder);

  // Makes every character of a name visible, as the server does in the rows: controls become their
  // symbols, and characters that change how others are displayed are replaced.
  const visible = (name) => name
    .replace(/[\x00-\x1f]/g, (control) => String.fromCharCode(0x2400 + control.charCodeAt(0)))
    .replace(/\x7f/g, '\u2421')
    .replace(/[\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]/g, '\ufffd');

  const PHRASES = {
    401: 'Unauthorized', 403: 'Forbidden', 404: 'Not Found', 413: 'Content Too Large',
    502: 'Bad Gateway', 503: 'Service Unavailable', 504: 'Gateway Timeout',
  };

  // Returns the server's explanation without the leading number; for a body other than plain text,
  // such as the page of a proxy, only the status.
  const reason = (status, type, text) => {
    const part = status === 207 ? text.match(/<D:responsedescription>([^<]*)/) : null;
    const isPlain = /^text\/plain *(;|$)/i.test(type ?? '');
    // An HTTP reason phrase says less than the sentence after it.
    const said = part ? part[1] : isPlain ? text.trim().split('\n')[0].replace(/^\d+ ([\w ]+: )?/, '') : '';
    return said.replace(/^./, (first) => first.toUpperCase()) || (PHRASES[status] ? `${status} ${PHRASES[status]}` : `the server answered ${status}`);
  };
  const refusal = async (response) =>
    reason(response.status, response.headers.get('Content-Type'), await response.text());

  // The reason for a missing response, whatever the browser calls it.
  const noAnswer = () => navigator.onLine ? 'The connection was lost' : 'There is no network';

  // Sends a request without a body; throws an error with the status if it is refused.
  const request = async (method, url, headers = {}, signal) => {
    const response = await fetch(url, { method, headers, signal, cache: 'no-store' })
      .catch(() => { throw new Error(noAnswer()); });
    // 207 means that part of a folder was not changed.
    if (!response.ok || response.status === 207) {
      const error = new Error(await refusal(response));
      throw Object.assign(error, { status: response.status });
    }
    return response;
  };

  // Asks the user something. `act` performs the choice, with a signal that is aborted when the user
  // closes the dialog; if it fails, the dialog shows why and stays open. Once `act` is over,
  // resolves to the last choice, done or not, and whether it is for all; or to null. With `isOpen`
  // the first choice changes nothing, so there is no Cancel button.
  const ask = (question) => new Promise((done) => {
    const { title, text, input, all, choices, isOpen = false, act = async () => {} } = question;
    const heading = element('h2', { id: 'ask', textContent: title });
    const field = input === undefined ? null
      : element('input', { value: input, autocomplete: 'off', spellcheck: false });
    field?.setAttribute('aria-labelledby', 'ask');
    const forAll = all ? element('input', { type: 'checkbox' }) : null;
    const fault = element('p', { className: 'fault', role: 'alert' });
    const buttons = choices.map(([value, label, kind]) =>
      element('button', { value, textContent: label, className: kind ?? '' }));
    const cancel = element('button', { type: 'button', textContent: 'Cancel' });
    const form = element('form', {}, heading, ...(text ? [element('p', {}, text)] : []),
      ...(field ? [field] : []), fault,
      ...(forAll ? [element('label', {}, forAll, all)] : []),
      element('div', { className: 'choices' }, ...(isOpen ? [] : [cancel]), ...buttons));
    const dialog = element('dialog', {}, form);
    dialog.setAttribute('aria-labelledby', 'ask');
    const stop = new AbortController();
    let chosen = null;
    let acting = null;
    const setBusy = (isBusy) => buttons.forEach((button) => { button.disabled = isBusy; });
    const decide = async (value) => {
      chosen = { value, all: forAll?.checked ?? false };
      setBusy(true);
      try {
        await act(field ? field.value : value, stop.signal);
        dialog.close();
      } catch (error) {
        fault.textContent = error.message;
        setBusy(false);
        (field ?? buttons[0]).focus();
      }
    };
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      acting = decide(event.submitter?.value ?? choices[0][0]);
    });
    cancel.addEventListener('click', () => dialog.close());
    dialog.addEventListener('close', async () => {
      stop.abort();
      dialog.remove();
      await acting;
      done(chosen);
    });
    document.body.append(dialog);
    dialog.showModal();
    if (!field) return;
    const dot = field.value.lastIndexOf('.');
    field.focus();
    field.setSelectionRange(0, dot > 0 ? dot : field.value.length);
  });

  // Fetches the page again and shows the current contents of the folder.
  const refresh = async () => {
    const url = new URL(location.href);
    // The number that a browser gets without a limit.
    if (!url.searchParams.has('limit')) url.searchParams.set('limit', 2000);
    try {
      const response = await request('GET', url, { Accept: 'text/html' });
      const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
      // Unchanged parts keep the focus and the scroll position.
      for (const [before, parts] of [
        ['link', 'style'], ['h1', '.summary'], ['.search', '.search ~ form'], ['main', 'main ~ :is(nav, article, footer)'],
      ]) {
        const [old, now] = [document, fresh].map((from) => [...from.querySelectorAll(parts)]);
        if (old.length === now.length && old.every((part, at) => part.isEqualNode(now[at]))) continue;
        old.forEach((part) => part.remove());
        document.querySelector(before).after(...now);
      }
      const focus = document.activeElement;
      const row = focus.closest('main tr');
      const at = row && controls(row).indexOf(focus);
      main.replaceChildren(...fresh.querySelector('main').childNodes);
      document.dispatchEvent(new Event('rows'));
      // Restore the focus in the table, whose elements were replaced.
      const same = row && [...main.querySelectorAll('tr')].find((other) => key(other) === key(row));
      if (same) controls(same)[at]?.focus({ preventScroll: true });
    } catch (error) {
      // The folder itself may be gone or inaccessible: then show the server's own page, unless that
      // would lose unfinished uploads.
      if ([401, 403, 404, 410].includes(error.status) && !hasStopped()) location.reload();
    }
  };

  // Whether an upload has failed or is paused.
  const hasStopped = () => document.querySelector('#uploads :is([data-state=failed], [data-state=paused])');

  // Returns a path as text; still encoded if it is not UTF-8.
  const readable = (path) => {
    try {
      return decodeURIComponent(path);
    } catch {
      return path;
    }
  };

  const link = (row) => row.querySelector('a');
  const shown = (row) => link(row).querySelector('bdi').textContent;
  // Includes the folders before the name, which the results of a search have.
  const path = (row) => [...link(row).querySelectorAll('.above, bdi')].map((part) => part.textContent).join('');
  const isFolder = (row) => link(row).classList.contains('dir');
  const isLink = (row) => link(row).querySelector('small') !== null;
  // The rows of entries, without the one for the parent folder.
  const rows = () => [...main.querySelectorAll('tbody tr:not(.parent)')];
  // The URL as the server wrote it, which identifies a row: a name may not be UTF-8. The row of
  // column headings has none.
  const key = (row) => link(row)?.getAttribute('href').split('?')[0];
  const controls = (row) => [...row.querySelectorAll('a, button, input')];
  const place = (row) => new URL(key(row), folder);

  // Formats a size as the server does.
  const size = (bytes) => {
    const power = Math.min(5, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
    const number = bytes / 1024 ** power;
    const digits = power && number < 9.95 ? 1 : 0;
    return `${number.toFixed(digits)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][power]}`;
  };

  // Returns the SHA-256 of a row's file, computed by the server.
  const digest = async (row) =>
    (await (await request('GET', new URL('?hash', place(row)))).text()).trim();

  // Copies text; browsers offer scripts a clipboard only over TLS or on this machine.
  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const field = element('textarea', { value: text, className: 'unseen' });
    (document.querySelector('dialog[open]') ?? document.body).append(field);
    field.select();
    const isDone = document.execCommand('copy');
    field.remove();
    if (!isDone) throw new Error('the browser does not allow it');
  };

  document.documentElement.classList.add('js');
  return {
    address, ask, copy, digest, element, folder, hasStopped, isFolder, isLink, key, link, main, path, place, readable,
    reason, refresh, request, rows, shown, noAnswer, size, visible,
  };
})();
