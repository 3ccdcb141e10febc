// Selects rows by their checkboxes, with Shift for all between two of them, and by keys: Space for
// the focused row, Shift and an arrow for more, Ctrl-A for all, Escape for none.
page.selection = (() => {
  'use strict';
  const {
    copy, digest, element, folder, isFolder, key, link, main, path, place, request, rows, shown, size,
  } = page;
  // In characters: a request head may have 32 KiB.
  const MAX_QUERY = 24_000;
  // In bytes: the maximum body with names.
  const MAX_BODY = 2 * 1024 * 1024;
  const canWalk = document.querySelector('.search [name=below]') !== null;
  const hasArchives = document.querySelector('.archive') !== null;
  // The keys of the selected rows.
  const chosen = new Set();
  // The row that was selected last, from which Shift extends.
  let last = null;

  const box = (row) => row.querySelector('.pick');
  const status = element('span', { role: 'status' });
  const buttons = element('div', { className: 'buttons' });
  const bar = element('section', { id: 'selection', hidden: true }, status, buttons);
  bar.setAttribute('aria-label', 'Selected entries');
  document.body.append(bar);

  // Rows hidden by the search box are left alone.
  const listed = () => rows().filter((row) => !row.hidden);
  const selected = () => listed().filter((row) => chosen.has(key(row)));

  const tell = () => {
    const these = selected();
    const bytes = these.reduce((sum, row) => sum + Number(row.querySelector('data')?.value ?? 0), 0);
    status.textContent = `${these.length} selected` + (bytes ? `, ${size(bytes)}` : '');
    bar.hidden = these.length === 0;
    const all = main.querySelector('th .pick');
    all.checked = these.length > 0 && these.length === listed().length;
    all.indeterminate = these.length > 0 && !all.checked;
  };

  const mark = (row, isOn) => {
    isOn ? chosen.add(key(row)) : chosen.delete(key(row));
    box(row).checked = isOn;
    row.classList.toggle('chosen', isOn);
  };
  const markAll = (isOn) => {
    (isOn ? listed() : rows()).forEach((row) => mark(row, isOn));
    tell();
  };
  const toggle = (row, isOn, isRange) => {
    const all = listed();
    const [from, to] = [all.indexOf(isRange && all.includes(last) ? last : row), all.indexOf(row)];
    all.slice(Math.min(from, to), Math.max(from, to) + 1)
      .forEach((other) => mark(other, isOn));
    last = row;
    tell();
  };

  // Adds a button to the bar that acts on the selected rows.
  const offer = (label, act, shortcut) => {
    const button = element('button', { type: 'button', textContent: label });
    button.dataset.select = label;
    button.addEventListener('click', async () => {
      try {
        await act(selected());
      } catch (error) {
        status.textContent = error.message;
      }
    });
    clear.before(button);
    if (shortcut) keys.set(shortcut, button);
    return button;
  };
  const keys = new Map();
  const clear = element('button', { type: 'button', textContent: 'Clear' });
  clear.addEventListener('click', () => markAll(false));
  buttons.append(clear);

  const archive = (format) => (these) => {
    const names = these.map((row) => key(row).replace(/\/$/, ''));
    const whole = `?archive=${format}`;
    let query = `${whole}&entry=${names.join('&entry=')}`;
    // Search results and further pages show only part of the folder.
    const isWhole = these.length === rows().length && !document.querySelector('.pages, .summary a');
    if (query.length > MAX_QUERY && isWhole) query = whole;
    query.length > MAX_QUERY ? post(names, whole) : location.assign(new URL(query, folder));
  };

  // Requests an archive by a form, because names that do not fit into a URL fit into a body. They
  // are already escaped, as in links, and may not be UTF-8.
  const post = (names, whole) => {
    const fields = names.map((value) => element('input', { type: 'hidden', name: 'entry', value }));
    if (names.join('\r\nentry=').length > MAX_BODY - 16) {
      throw new Error('Too many entries for one archive: select fewer, or download the whole folder');
    }
    // Requesting the same URL by GET must not return the whole folder.
    const action = new URL(`${whole}&entry=`, folder);
    const form = element('form', { method: 'post', enctype: 'text/plain', action, hidden: true }, ...fields);
    document.body.append(form);
    form.submit();
    form.remove();
  };

  const digests = async (these) => {
    const text = element('pre', { textContent: '\u2026' });
    const choices = [['copy', 'Copy']];
    const asked = page.ask({ title: 'SHA-256', text, choices, act: () => copy(text.textContent) });
    text.closest('dialog').classList.add('wide');
    const lines = [];
    for (const row of these.filter((row) => !isFolder(row))) {
      if (!text.isConnected) return;
      const hash = await digest(row).catch((error) => `(${error.message})`);
      lines.push(`${hash}  ${path(row)}`);
      text.textContent = lines.join('\n') + '\n';
    }
    if (!lines.length) text.textContent = 'Folders have no digest.';
    await asked;
  };

  const links = async (these) => {
    await copy(these.map((row) => place(row).href).join('\n'));
    status.textContent = these.length > 1 ? 'Links copied' : 'Link copied';
  };

  // Requests the sizes of folders, and shows them in their rows.
  const measure = async (these) => {
    for (const row of these.filter(isFolder)) {
      const found = await (await request('GET', new URL('?size', place(row)))).json();
      const text = (found.complete ? '' : '> ') + size(found.bytes);
      row.querySelector('.sum')?.remove();
      const sum = element('data', { value: found.bytes, textContent: text, className: 'sum' });
      sum.title = `${found.files} files, ${found.folders} folders`;
      (row.querySelector('.zip') ?? row.cells[1]).prepend(sum);
    }
    tell();
  };

  // Adds a checkbox to each row.
  const equip = () => {
    const pick = (label) => {
      const made = element('input', { type: 'checkbox', className: 'pick' });
      made.setAttribute('aria-label', label);
      return made;
    };
    main.querySelector('th').prepend(pick('Select all'));
    // A key without a row is deselected, so that a later entry of the same name is not selected.
    const before = new Set(chosen);
    chosen.clear();
    for (const row of rows()) {
      row.cells[0].prepend(pick(`Select ${shown(row)}`));
      if (before.has(key(row))) mark(row, true);
    }
    const folders = rows().filter(isFolder);
    if (folders.length && canWalk && !main.classList.contains('gallery')) {
      const sizes = element('button', { type: 'button', textContent: 'Folder sizes', className: 'sizes' });
      sizes.addEventListener('click', () => {
        sizes.disabled = true;
        measure(folders).catch((error) => { sizes.textContent = error.message; })
          .finally(() => { sizes.disabled = false; });
      });
      document.querySelector('.summary').append(' ', sizes);
    }
    tell();
  };

  main.addEventListener('click', (event) => {
    const pick = event.target.closest('tr')?.querySelector('.pick');
    if (!pick || event.target.closest('a, button')) return;
    if (event.target !== pick) {
      // A click close to the checkbox counts.
      if (event.clientX > pick.getBoundingClientRect().right + 16) return;
      pick.checked = !pick.checked;
    }
    const row = pick.closest('tbody tr');
    row ? toggle(row, pick.checked, event.shiftKey) : markAll(pick.checked);
  });

  // The row that had the focus before.
  let left = null;
  main.addEventListener('focusout', (event) => { left = event.target.closest('tbody tr:not(.parent)'); });
  addEventListener('keydown', (event) => {
    if (document.querySelector('dialog[open]')) return;
    const row = document.activeElement.closest('main tbody tr:not(.parent)');
    const isLink = row && document.activeElement === link(row);
    const isArrow = event.key === 'ArrowDown' || event.key === 'ArrowUp';
    if (event.key === ' ' && isLink) {
      toggle(row, !box(row).checked, event.shiftKey);
    } else if (isArrow && event.shiftKey && row) {
      // The focus has already moved.
      if (left && left !== row) mark(left, true);
      toggle(row, true, false);
    } else if (event.key === 'a' && (event.ctrlKey || event.metaKey) && row) {
      markAll(true);
    } else if (event.key === 'Escape' && chosen.size && document.activeElement.type !== 'search') {
      markAll(false);
    } else if (keys.has(event.key) && !bar.hidden && (row || bar.contains(document.activeElement))) {
      keys.get(event.key).click();
    } else {
      return;
    }
    event.preventDefault();
  });

  if (hasArchives) ['zip', 'tar'].forEach((format) => offer(`Download ${format}`, archive(format)));
  offer('Copy links', links);
  offer('SHA-256', digests);
  document.addEventListener('rows', equip);
  document.querySelector('.search').addEventListener('input', tell);
  equip();
  // A renamed row stays selected.
  const carry = (from, to) => { if (chosen.delete(from)) chosen.add(to); };
  return { carry, offer };
})();
