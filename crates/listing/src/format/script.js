// Shows times in the user's format, filters the rows while typing, and moves between them by keys.
(() => {
  'use strict';
  const search = document.querySelector('.search');
  const box = search.q;
  const further = search.below ? 'the folders below, too' : 'all pages';
  let rows, names, times, parent, none;
  // Converts text to the form that the server compares.
  const searched = (text) => text.toLowerCase().normalize();

  // Formats times in the user's time zone and format, some rows at a time.
  const short = new Intl.DateTimeFormat(undefined, {
    dateStyle: matchMedia('(max-width: 44rem)').matches ? 'short' : 'medium', timeStyle: 'short',
  });
  const long = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long' });
  const localize = () => {
    for (const time of times.splice(0, 500)) {
      const moment = new Date(time.dateTime);
      if (isNaN(moment)) continue;
      time.textContent = short.format(moment);
      time.title = long.format(moment);
    }
    if (times.length) setTimeout(localize);
  };

  // Filters the rows while typing. Enter searches all folders below on the server.
  const narrow = () => {
    const word = searched(box.value);
    let shown = 0;
    if (parent) parent.hidden = word !== '';
    rows.forEach((row, at) => {
      row.hidden = !names[at].includes(word);
      shown += !row.hidden;
    });
    none.hidden = shown > 0 || !rows.length;
    none.textContent = none.hidden ? ''
      : `No names on this page match. Press Enter to search ${further}.`;
  };
  const asked = box.value;

  // Reads the table, now and whenever it changes.
  const load = () => {
    rows = page.rows();
    names = rows.map((row) => searched(page.link(row).textContent));
    times = [...document.querySelectorAll('main time')];
    parent = document.querySelector('.parent');
    none = document.getElementById('none');
    document.querySelector('.utc')?.remove();
    localize();
    if (!asked) narrow();
  };
  document.addEventListener('rows', load);
  load();

  box.addEventListener('input', () => (asked ? 0 : narrow()));
  search.addEventListener('submit', (event) => {
    if (!asked && !box.value.trim()) event.preventDefault();
  });
  addEventListener('pageshow', () => (asked ? 0 : narrow()));

  // A slash focuses the search box, arrows move from name to name.
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = document.activeElement;
    if (document.querySelector('dialog[open]')) return;
    if (event.key === '/' && here !== box) {
      box.select();
    } else if (event.key === 'Escape' && here === box && !asked) {
      box.value = '';
      box.dispatchEvent(new Event('input', { bubbles: true }));
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      const links = [...document.querySelectorAll('main tbody tr:not([hidden]) a')];
      const at = links.indexOf(here);
      if (at < 0 && here !== box && here !== document.body) return;
      const next = event.key === 'ArrowDown' ? at + 1 : at - 1;
      (links[next] ?? (next < 0 ? box : here)).focus();
    } else {
      return;
    }
    event.preventDefault();
  });
})();
