// Shows pictures, sound, video, text and PDF over the page. The arrow keys move to the next one.
(() => {
  'use strict';
  const { copy, element, link, main, place, rows, shown } = page;
  // In bytes.
  const MOST_TEXT = 256 << 10;
  const KINDS = {
    image: /\.(avif|bmp|gif|ico|jpe?g|png|svg|webp)$/i,
    audio: /\.(aac|flac|m4a|mp3|oga|ogg|opus|wav)$/i,
    video: /\.(m4v|mov|mp4|ogv|webm)$/i,
    pdf: /\.pdf$/i,
    text: /\.(c|cfg|conf|cpp|css|csv|go|h|ini|java|js|json|log|md|py|rs|rst|sh|sql|toml|ts|txt|xml|ya?ml)$/i,
  };

  const kind = (row) => {
    const name = shown(row);
    return Object.keys(KINDS).find((kind) => KINDS[kind].test(name));
  };
  const all = () => rows().filter((row) => !row.hidden && kind(row));

  const title = element('h2', { id: 'preview-title' });
  const count = element('span');
  const body = element('div', { className: 'body' });
  const said = element('span', { role: 'status' });
  const button = (label, name, act) => {
    const made = element('button', { type: 'button', textContent: label, title: name });
    made.setAttribute('aria-label', name);
    made.addEventListener('click', act);
    return made;
  };
  let row = null;

  const tell = (text) => { said.textContent = text; };
  const copyLink = () => copy(place(row).href).then(() => tell('Link copied'), (error) => tell(error.message));
  const digest = async () => {
    const asked = row;
    tell('\u2026');
    try {
      const hash = await page.digest(asked);
      if (row === asked) tell(hash);
    } catch (error) {
      tell(error.message);
    }
  };
  const open = element('a', { textContent: 'Open' });
  const download = element('a', { textContent: 'Download', download: '' });
  const dialog = element('dialog', { className: 'preview', tabIndex: -1 },
    element('header', {}, title, count, said,
      button('Copy link', 'Copy link', copyLink), button('SHA-256', 'SHA-256', digest), open, download,
      button('\u2715', 'Close', () => dialog.close())),
    body,
    button('\u2039', 'Previous', () => step(-1)), button('\u203a', 'Next', () => step(1)));
  dialog.setAttribute('aria-labelledby', 'preview-title');

  // Decodes as browsers do for the file itself. UTF-8 never begins with the bytes of these marks.
  const decode = (bytes) => {
    const code = { 0xff: 'utf-16le', 0xfe: 'utf-16be' }[new Uint8Array(bytes)[0]];
    return new TextDecoder(code).decode(bytes);
  };

  const readText = async (url) => {
    const headers = { Range: `bytes=0-${MOST_TEXT - 1}` };
    const response = await page.request('GET', url, headers)
      .catch((error) => { if (error.status !== 416) throw error; });
    if (!response) return element('p', { textContent: 'This file is empty.' });
    const range = response.headers.get('Content-Range');
    const isCut = range !== null && Number(range.split('/')[1]) > MOST_TEXT;
    const text = element('pre', { textContent: decode(await response.arrayBuffer()), tabIndex: 0 });
    return element('div', {}, text, isCut ? element('p', { textContent: 'The first 256 KiB.' }) : '');
  };

  const MAKE = {
    image: (url) => element('img', { src: url, alt: title.textContent }),
    audio: (url) => element('audio', { src: url, controls: true, autoplay: true }),
    video: (url) => element('video', { src: url, controls: true, autoplay: true }),
    pdf: (url) => element('iframe', { src: url, title: title.textContent }),
    text: readText,
  };

  const show = async (next) => {
    row = next;
    const rowsOfAll = all();
    const url = place(row).href;
    title.textContent = shown(row);
    count.textContent = `${rowsOfAll.indexOf(row) + 1} of ${rowsOfAll.length}`;
    tell('');
    open.href = url;
    download.href = `${url}?download`;
    body.replaceChildren();
    try {
      const made = await MAKE[kind(row)](url);
      if (row !== next) return;
      made.addEventListener('error', () => tell('The browser cannot show this file.'));
      body.replaceChildren(made);
    } catch (error) {
      if (row === next) tell(error.message);
    }
  };
  const step = (by) => {
    const rowsOfAll = all();
    const next = rowsOfAll[rowsOfAll.indexOf(row) + by];
    if (next) show(next);
  };

  dialog.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    // In a player these keys have their own meaning.
    if (!by || event.target.matches('audio, video')) return;
    event.preventDefault();
    step(by);
  });
  dialog.addEventListener('close', () => {
    body.replaceChildren();
    dialog.remove();
    link(row).focus();
  });
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });

  // A plain click shows the file here; with a modifier or the middle button, the browser opens it.
  main.addEventListener('click', (event) => {
    const clicked = event.target.closest('tbody a');
    const next = clicked?.closest('tr');
    if (!clicked || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (next.classList.contains('parent') || clicked.classList.contains('dir') || !kind(next)) return;
    event.preventDefault();
    document.body.append(dialog);
    dialog.showModal();
    dialog.focus();
    show(next);
  });
})();
