// Removes, renames and moves entries of the folder, and creates folders.
(() => {
  'use strict';
  const {
    address, ask, element, folder, isFolder, isLink, key, link, main, path, place, readable, refresh, request,
    rows, shown, visible,
  } = page;
  // The most names in the question before a deletion.
  const MOST_NAMES = 5;
  const may = new Set(main.dataset.may.split(' '));

  // Checks that a typed name can be that of one entry.
  const checked = (name) => {
    if (name.trim() === '') throw new Error('A name is needed.');
    if (name === '.' || name === '..' || /[/\0]/.test(name)) {
      throw new Error('A name has no slash, and is not . or ..');
    }
    return name;
  };

  // Calls `act` for each remaining row until aborted, and throws the refusals at the end. A call
  // that has begun is awaited: the server completes it anyway.
  const each = async (left, signal, act) => {
    const faults = [];
    for (const row of left) {
      if (signal.aborted) return;
      try {
        await act(row);
        left.delete(row);
      } catch (error) {
        faults.push(`${path(row)}: ${error.message}`);
      }
    }
    if (!faults.length) return;
    const others = faults.length > 1 ? ` (and ${faults.length - 1} more)` : '';
    throw new Error(faults[0] + others);
  };

  // Reloads the rows, and focuses the one at this index.
  const showFrom = async (index) => {
    await refresh();
    const left = main.querySelectorAll('tr');
    left[Math.min(index, left.length - 1)]?.querySelector('a, button')?.focus();
  };

  const remove = async (chosen) => {
    const [row] = chosen;
    const left = new Set(chosen);
    const index = row.rowIndex;
    const isOne = chosen.length === 1;
    const kind = isLink(row) ? 'link' : isFolder(row) ? 'folder' : 'file';
    // Deleting a link to a folder removes only the link.
    const isWhole = (row) => isFolder(row) && !isLink(row);
    const more = chosen.length - MOST_NAMES;
    const names = chosen.slice(0, MOST_NAMES).map(path).join(', ') + (more > 0 ? ` and ${more} more` : '');
    const answer = await ask({
      title: isOne ? `Delete this ${kind}?` : `Delete these ${chosen.length}?`,
      text: names + (chosen.some(isWhole) ? ', with everything inside' : ''),
      choices: [['delete', 'Delete', 'danger']],
      act: (value, signal) => each(left, signal, (row) => request('DELETE', place(row))),
    });
    if (answer) await showFrom(index);
  };

  // A relative URL, because a proxy may replace the beginning of paths.
  const moveTo = (row, url) => {
    const [from, to] = [place(row), url].map((it) => it.pathname.split('/'));
    for (; from.length > 1 && from[0] === to[0]; to.shift()) from.shift();
    const path = './' + '../'.repeat(from.length - 1) + to.join('/');
    return request('MOVE', place(row), { Destination: path, Overwrite: 'F' });
  };

  // Returns the name of a row, or nothing if it has characters that are shown replaced: confirmed
  // unchanged, the shown text would become the name.
  const exact = (row) => {
    const [name] = place(row).pathname.match(/[^/]+(?=\/?$)/);
    return readable(name) === shown(row) ? shown(row) : '';
  };

  // Encodes a name as the server does in links.
  const encoded = (name) => encodeURIComponent(name)
    .replace(/[!'()*]/g, (sign) => '%' + sign.charCodeAt(0).toString(16).toUpperCase());

  const renameRow = async (row) => {
    const from = key(row);
    const old = exact(row);
    let isTried = false;
    await ask({
      title: `Rename ${shown(row)}`,
      input: old,
      choices: [['rename', 'Rename']],
      act: async (name) => {
        if (checked(name) === old) return;
        isTried = true;
        const to = from.replace(/[^/]+(?=\/?$)/, () => encoded(name));
        await moveTo(row, new URL(to, folder));
        page.selection.carry(from, to);
        link(row).setAttribute('href', to);
      },
    });
    // An entry that could not be renamed may be gone.
    if (isTried) await refresh();
  };

  // A list of folders to choose one from, beginning with the one on the page.
  const picker = () => {
    const root = new URL(document.querySelector('header nav a')?.getAttribute('href') ?? './', folder);
    const where = element('p', { className: 'where' });
    const list = element('div', { className: 'folders' });
    const picked = { at: folder, element: element('div', { className: 'picker' }, where, list) };
    const enter = async (at) => {
      picked.at = at;
      where.textContent = '/' + visible(readable(at.pathname.slice(root.pathname.length)));
      const button = (text, to, kind) => {
        const made = element('button', { type: 'button', textContent: text, className: kind });
        made.addEventListener('click', () => enter(to));
        return made;
      };
      const up = at.pathname.length > root.pathname.length
        ? [button('Parent folder', new URL('..', at), 'up')] : [];
      list.replaceChildren(...up);
      try {
        const response = await request('GET', new URL('?json&limit=2000', at));
        const found = (await response.json()).filter((entry) => entry.is_dir);
        const inside = found.map((entry) =>
          button(visible(entry.name), new URL(entry.url, at), 'dir'));
        if (picked.at === at) list.replaceChildren(...up, ...inside);
      } catch (error) {
        list.append(error.message);
      }
      list.querySelector('button')?.focus();
    };
    enter(folder);
    return picked;
  };

  const move = async (chosen) => {
    const picked = picker();
    const left = new Set(chosen);
    const answer = await ask({
      title: chosen.length > 1 ? `Move these ${chosen.length} to` : `Move ${shown(chosen[0])} to`,
      text: picked.element,
      choices: [['move', 'Move here']],
      act: (value, signal) => {
        // Fix the folder, whatever is clicked on meanwhile.
        const { at } = picked;
        return each(left, signal, (row) => {
          const [name] = place(row).pathname.match(/[^/]+\/?$/);
          const moved = new URL(`./${name}`, at);
          if (moved.href === place(row).href) throw new Error('it is in this folder');
          return moveTo(row, moved);
        });
      },
    });
    if (answer) await showFrom(1);
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

  // Adds buttons to each row.
  const equip = () => {
    if (!may.has('delete')) return;
    const head = element('th', { scope: 'col', className: 'act' },
      element('span', { className: 'unseen', textContent: 'Actions' }));
    main.querySelector('thead tr').append(head);
    const parent = main.querySelector('.parent td');
    if (parent) parent.colSpan = 4;
    for (const row of rows()) {
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
    button.classList.contains('remove') ? remove([row]) : renameRow(row);
  });
  document.addEventListener('rows', equip);
  document.querySelector('[data-do=make]')?.addEventListener('click', make);
  if (may.has('delete') && may.has('upload')) page.selection.offer('Move', move);
  if (may.has('delete')) page.selection.offer('Delete', remove, 'Delete');
  equip();
})();
