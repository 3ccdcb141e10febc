// Removes and renames what is in the folder, makes folders, and has what uploads need too.
const page = (() => {
  'use strict';
  const main = document.querySelector('main');
  const may = new Set(main.dataset.may.split(' '));
  const folder = new URL(location.pathname, location.origin);

  const element = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  // The address of a path in this folder. Of a name nothing means anything in it.
  const address = (path) => new URL(path.split('/').map(encodeURIComponent).join('/'), folder);

  // What the server says is wrong, without the number in front.
  const reason = (status, text) => {
    const said = text.trim().split('\n')[0].replace(/^\d+ /, '');
    return said || `the server answered ${status}`;
  };

  // Sends a request without a body; what is refused becomes an error with the status.
  const request = async (method, url, headers = {}) => {
    const response = await fetch(url, { method, headers, cache: 'no-store' });
    if (!response.ok) {
      const error = new Error(reason(response.status, await response.text()));
      throw Object.assign(error, { status: response.status });
    }
    return response;
  };

  // Asks the reader something. `act` does what was decided; if that fails, it is asked again and
  // said why. Tells what was chosen and whether that is for all, or null. With `isOpen` the first
  // choice is as good as none, so there is no way out beside it.
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
    let chosen = null;
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      const value = event.submitter?.value ?? choices[0][0];
      try {
        await act(field ? field.value : value);
        chosen = { value, all: forAll?.checked ?? false };
        dialog.close();
      } catch (error) {
        fault.textContent = error.message;
        field?.focus();
      }
    });
    cancel.addEventListener('click', () => dialog.close());
    dialog.addEventListener('close', () => {
      dialog.remove();
      done(chosen);
    });
    document.body.append(dialog);
    dialog.showModal();
    if (!field) return;
    const dot = field.value.lastIndexOf('.');
    field.focus();
    field.setSelectionRange(0, dot > 0 ? dot : field.value.length);
  });

  // A typed name, which has to be that of one entry.
  const checked = (name) => {
    if (name.trim() === '') throw new Error('A name is needed.');
    if (name === '.' || name === '..' || /[/\0]/.test(name)) {
      throw new Error('A name has no slash, and is not . or ..');
    }
    return name;
  };

  // Fetches the page anew and shows what is in the folder now.
  const refresh = async () => {
    const url = new URL(location.href);
    // As many as a browser gets that names no number.
    if (!url.searchParams.has('limit')) url.searchParams.set('limit', 2000);
    try {
      const response = await request('GET', url, { Accept: 'text/html' });
      const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
      document.querySelector('.summary').replaceWith(fresh.querySelector('.summary'));
      main.replaceChildren(...fresh.querySelector('main').childNodes);
      document.dispatchEvent(new Event('rows'));
    } catch (error) {
      // The folder itself may be gone, or shut: then the server's own page says so. Without a
      // network there would be none.
      if (error.status) location.reload();
    }
  };

  const link = (row) => row.querySelector('a');
  const shown = (row) => link(row).querySelector('bdi').textContent;
  // The name as the server wrote it: it need not be text.
  const place = (row) => new URL(link(row).getAttribute('href').split('?')[0], folder);

  const removeRow = async (row) => {
    const isFolder = link(row).classList.contains('dir');
    const index = row.rowIndex;
    const answer = await ask({
      title: isFolder ? 'Delete this folder?' : 'Delete this file?',
      text: isFolder ? `${shown(row)}, with everything in it` : shown(row),
      choices: [['delete', 'Delete', 'danger']],
      act: () => request('DELETE', place(row)),
    });
    if (!answer) return;
    await refresh();
    // To where the row was, for those who have no pointer.
    const rows = main.querySelectorAll('tr');
    rows[Math.min(index, rows.length - 1)]?.querySelector('a, button')?.focus();
  };

  const renameRow = async (row) => {
    const slash = link(row).classList.contains('dir') ? '/' : '';
    const answer = await ask({
      title: `Rename ${shown(row)}`,
      input: shown(row),
      choices: [['rename', 'Rename']],
      act: async (name) => {
        const destination = address(checked(name)).pathname + slash;
        if (destination === place(row).pathname) return;
        await request('MOVE', place(row), { Destination: destination, Overwrite: 'F' });
      },
    });
    if (answer) await refresh();
  };

  const make = async () => {
    const answer = await ask({
      title: 'New folder',
      input: '',
      choices: [['make', 'Create']],
      act: (name) => request('MKCOL', address(checked(name) + '/')),
    });
    if (answer) await refresh();
  };

  // Gives each row its buttons.
  const equip = () => {
    if (!may.has('delete')) return;
    const head = element('th', { scope: 'col', className: 'act' },
      element('span', { className: 'unseen', textContent: 'Actions' }));
    main.querySelector('thead tr').append(head);
    for (const row of main.querySelectorAll('tbody tr')) {
      if (row.classList.contains('parent')) {
        row.cells[0].colSpan = 4;
        continue;
      }
      const button = (label, kind) => {
        const made = element('button', { type: 'button', className: kind, title: label });
        made.setAttribute('aria-label', `${label} ${shown(row)}`);
        return made;
      };
      const cell = row.insertCell();
      cell.className = 'act';
      if (may.has('upload')) cell.append(button('Rename', 'rename'));
      cell.append(button('Delete', 'remove'));
    }
  };

  main.addEventListener('click', (event) => {
    const button = event.target.closest('td.act button');
    if (!button) return;
    const row = button.closest('tr');
    button.classList.contains('remove') ? removeRow(row) : renameRow(row);
  });
  document.addEventListener('rows', equip);
  document.querySelector('[data-do=make]')?.addEventListener('click', make);
  equip();
  return { address, ask, element, folder, main, reason, refresh, request };
})();
