// Our object in our own world of a frame: nothing that the page replaces is seen there. Its counters live as long as the frame's window does.
(() => {
  'use strict';
  const standard = new Set(('a abbr acronym address applet area article aside audio b base basefont bdi bdo big blockquote body br button canvas ' +
    'caption center cite code col colgroup data datalist dd del details dfn dialog dir div dl dt em embed fieldset figcaption figure font footer ' +
    'form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html i iframe img input ins kbd label legend li link main map mark menu meta ' +
    'meter nav noframes noscript object ol optgroup option output p param picture pre progress q rp rt ruby s samp script search section select ' +
    'small source span strike strong style sub summary sup svg table tbody td template textarea tfoot th thead time title tr track tt u ul var ' +
    'video wbr').split(' '));
  const interactive = new Set(['input', 'textarea', 'select', 'button', 'a', 'iframe', 'video', 'li', 'td', 'option']);
  const buttons = 'button, a, input[type="button"], div[role="button"]';
  const visibility = 'browsergym_visibility_ratio', som = 'browsergym_set_of_marks';
  const thresholds = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1];
  // Methods and getters as functions of their element: an input that is named after one hides it from its form, and an image from the document.
  const own = (type, name) => {
    const d = Object.getOwnPropertyDescriptor(type.prototype, name);
    return Function.prototype.call.bind(d.get || d.value);
  };
  const [tagOf, shadowOf, boxOf, getAttribute, setAttribute, removeAttribute, hasAttribute, matches, outerHTML] =
    ['tagName', 'shadowRoot', 'getBoundingClientRect', 'getAttribute', 'setAttribute', 'removeAttribute', 'hasAttribute', 'matches', 'outerHTML']
      .map(name => own(Element, name));
  const [parentOf, contains] = ['parentElement', 'contains'].map(name => own(Node, name));
  const [queryAll, query, fromPoint, activeElement, animations, readyState, images] =
    ['querySelectorAll', 'querySelector', 'elementFromPoint', 'activeElement', 'getAnimations', 'readyState', 'images'].map(name => own(Document, name));
  const [listen, unlisten] = ['addEventListener', 'removeEventListener'].map(name => own(EventTarget, name));

  // Asks page.js or timers.js, which are in the page's world, and reports whether they say yes. In shadow trees, too, an event of the window's
  // own viewport hands over the element as it is, and document.open() does not end who listens to it.
  const ask = (what, e) => !visualViewport.dispatchEvent(new FocusEvent('evalrun.' + what, {cancelable: true, relatedTarget: e}));

  let numbers = 0, letters = 0, first = true, pass = null, changed = false;

  // Others' changes of the document are noted; ours, made in between, are not.
  const watcher = new MutationObserver(() => {
    changed = true;
  });
  const watch = () => watcher.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  let rests = 0;
  // Looks again when the page has had its say on what we have done: what its own observers change at once is its answer to marks.
  const watchSoon = async () => {
    const before = rests;
    for (let i = 0; i < 10; i++) await null;
    if (before === rests) watch();
  };
  const rest = () => {
    rests++;
    if (watcher.takeRecords().length) changed = true;
    watcher.disconnect();
  };

  // All elements, those of an open shadow root right after its host.
  const walk = visit => {
    const stack = [{list: queryAll(document, '*'), i: 0}];
    while (stack.length) {
      const top = stack[stack.length - 1];
      if (top.i >= top.list.length) {
        stack.pop();
        continue;
      }
      const e = top.list[top.i++];
      const shadow = shadowOf(e);
      if (shadow) stack.push({list: shadow.querySelectorAll('*'), i: 0});
      visit(e);
    }
  };

  // a … z, aA … zZ, aAA …
  const letter = n => {
    let size = 26, length = 1;
    while (n >= size) {
      n -= size;
      size *= 26;
      length++;
    }
    let s = '';
    for (let i = 0; i < length; i++) {
      s = String.fromCharCode((i === length - 1 ? 97 : 65) + n % 26) + s;
      n = Math.floor(n / 26);
    }
    return s;
  };

  const atPoint = (x, y) => {
    let root = document, last = null, e = null;
    do {
      last = e;
      e = root === document ? fromPoint(document, x, y) : root.elementFromPoint(x, y);
      root = e && shadowOf(e);
    } while (root && e !== last);
    return e;
  };

  const belongs = (e, tag, accepted, clickable) => {
    const r = boxOf(e);
    const hit = atPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2);
    if (!hit || hit !== e && !contains(e, hit)) return false;
    if (!interactive.has(tag) && !clickable && getComputedStyle(e).cursor !== 'pointer') return false;
    if (r.width * r.height < 20) return false;
    for (let up = e; up; up = parentOf(up)) if (accepted.has(up)) return false;
    const parent = parentOf(e);
    return !(parent && tagOf(parent).toLowerCase() === 'span' && parent.children.length === 1 && parent.getAttribute('role') &&
      parent.getAttribute(som) === '1');
  };

  const take = () => {
    if (pass) note(pass.observer.takeRecords());
  };
  const note = entries => {
    if (pass.early) rest();
    for (const entry of entries) {
      setAttribute(entry.target, visibility, String(Math.round(entry.intersectionRatio * 100) / 100));
      pass.missing.delete(entry.target);
    }
    if (pass.early) watchSoon();
    if (!pass.missing.size && pass.done) pass.done(true);
  };

  // Gives numbers to elements that have none, and begins to look which are visible.
  const mark = (prefix, all) => {
    if (pass) pass.observer.disconnect();
    pass = {observer: new IntersectionObserver(note, {threshold: thresholds}), missing: new Set(), done: null, all, fresh: [],
      before: {numbers, letters, first}};
    const used = new Set(), accepted = new Set(), initial = first;
    first = false;
    walk(e => {
      const tag = tagOf(e).toLowerCase();
      if (!all && !standard.has(tag)) return;
      setAttribute(e, visibility, '0');
      pass.missing.add(e);
      pass.observer.observe(e);
      const clickable = ask('note', e);
      let bid = getAttribute(e, 'bid');
      if (hasAttribute(e, 'bid')) {
        if (initial) throw new Error('Attribute bid already used in element ' + outerHTML(e));
        if (used.has(bid)) bid = null;
      }
      if (bid === null) {
        bid = prefix + (tag === 'iframe' || tag === 'frame' ? letter(letters++) : numbers++);
        pass.fresh.push([e, getAttribute(e, 'bid')]);
        setAttribute(e, 'bid', bid);
      }
      used.add(bid);
      for (const name of ['aria-roledescription', 'aria-description']) {
        setAttribute(e, name, 'browsergym_id_' + bid + ' ' + (getAttribute(e, name) || ''));
      }
      setAttribute(e, som, '0');
      if (belongs(e, tag, accepted, clickable)) {
        setAttribute(e, som, '1');
        if (matches(e, buttons)) accepted.add(e);
        for (let up = parentOf(e); up; up = parentOf(up)) if (getAttribute(up, som) === '1') setAttribute(up, som, '0');
      }
    });
  };

  // Resolves to true when all elements were seen, to false when some were not within ms.
  const settled = ms => {
    take();
    const mine = pass;
    return new Promise(resolve => {
      const timer = setTimeout(() => mine.done(false), ms);
      mine.done = seen => {
        clearTimeout(timer);
        mine.observer.disconnect();
        resolve(seen);
      };
      if (!mine.missing.size) mine.done(true);
    });
  };

  // Takes out again what must not stay.
  const unmark = () => {
    rest();
    if (pass) pass.early = false;
    walk(e => {
      for (const name of ['aria-description', 'aria-roledescription']) {
        const text = getAttribute(e, name);
        if (text === null) continue;
        const before = text.replace(/^browsergym_id[^\s]*\s/, '');
        if (before) setAttribute(e, name, before);
        else removeAttribute(e, name);
      }
    });
  };

  // Marks at once, in the hope that nothing happens until an observation is taken. Whether the page lets itself be marked is for mark() to say.
  const early = all => {
    rest();
    try {
      mark('', all);
      pass.early = true;
    } catch {
      undo();
    }
    changed = false;
    watchSoon();
  };
  // As if it had not been marked.
  const undo = () => {
    unmark();
    pass.observer.disconnect();
    for (const [e, bid] of pass.fresh) {
      if (bid === null) removeAttribute(e, 'bid');
      else setAttribute(e, 'bid', bid);
    }
    ({numbers, letters, first} = pass.before);
    pass = null;
  };

  // Does something after the frame, without a timer, since timers are what is looked at.
  const task = f => {
    const {port1, port2} = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      f();
    };
    port2.postMessage(0);
  };
  // Whether what a pass has noted of inputs still holds: no change of theirs is a change of the document.
  const holds = () => {
    let same = true;
    walk(e => {
      if (ask('changed', e)) same = false;
    });
    return same;
  };

  let turn = 0; // of waitIdle(): whoever asked may no longer wait when a busy machine gets to it, and then it must not mark
  // Whether a timer is due within a time, here or in a frame.
  const waits = (w, within) => {
    try {
      if (!w.visualViewport.dispatchEvent(new UIEvent('evalrun.busy', {cancelable: true, detail: within}))) return true;
      for (let i = 0; i < w.length && i < 50; i++) if (waits(w[i], within)) return true;
    } catch {
      // Of another origin, which says nothing.
    }
    return false;
  };
  const moves = () => animations(document).some(a => a.playState === 'running' && a.effect.getComputedTiming().endTime < Infinity);
  const loads = () => readyState(document) !== 'complete' || Array.prototype.some.call(images(document), i => !i.complete && i.loading !== 'lazy');

  return {
    // Waits until the document and its images are loaded and, unless it is only opened, nothing of it goes on: no timer is due within the time that
    // is left, no animation runs, and so many frames have passed in which it has neither changed nor scrolled. At most so many milliseconds. With marks (false: those of
    // standard elements, true: of all) elements are marked in that same frame, so that an observation that follows need not wait for another one.
    waitIdle(limit, opened, marks, frames) {
      // An opened page is looked at sooner by the reference: only timers that are due until then count.
      const begun = performance.now(), end = begun + limit, soon = opened ? Math.min(end, begun + 250) : end;
      if (pass && pass.early) undo();
      changed = false;
      watch();
      let left = frames;
      const mine = ++turn;
      const scrolled = () => {
        changed = true;
      };
      listen(document, 'scroll', scrolled, {capture: true, passive: true});
      return new Promise(resolve => {
        const done = idle => {
          unlisten(document, 'scroll', scrolled, {capture: true});
          if (turn === mine && (!pass || !pass.early)) rest();
          resolve(idle);
        };
        const busy = () => {
          if (watcher.takeRecords().length) changed = true;
          return loads() || waits(window, soon - performance.now()) || !opened && (changed || moves());
        };
        const look = () => {
          if (turn !== mine || performance.now() >= end) return done(false);
          const now = busy();
          if (now || --left > 0) {
            if (now) left = frames;
            changed = false;
            return requestAnimationFrame(look);
          }
          if (marks !== null && query(document, 'iframe, frame') === null) early(marks);
          const after = () => {
            if (turn !== mine) return done(false);
            if (!busy()) return done(true);
            if (pass && pass.early) undo();
            changed = false;
            left = frames;
            watch();
            requestAnimationFrame(look);
          };
          if (pass && pass.early) settled(end - performance.now()).then(after);
          else task(after);
        };
        requestAnimationFrame(look);
      });
    },

    // Whether nothing here can move by itself just now, so that an element is where it is.
    still: () => ask('still') && !animations(document).length && !loads(),

    // Marks all elements whose tags are standard, or all. Visibility is known when settled() is. What waitIdle() has marked stands if nothing has changed.
    mark(prefix, all) {
      turn++;
      rest();
      const stands = pass && pass.early && !changed && !pass.missing.size && prefix === '' && pass.all === all && holds();
      if (pass && pass.early && !stands) undo();
      if (stands) pass.early = false;
      else mark(prefix, all);
    },
    settled,
    unmark() {
      turn++;
      unmark();
    },

    // The bid of the element that has the focus, and whether it holds a frame.
    focused() {
      let e = activeElement(document);
      while (e && shadowOf(e)) e = shadowOf(e).activeElement;
      return e ? {bid: getAttribute(e, 'bid') || '', frame: 'contentWindow' in e} : null;
    },
  };
})()
