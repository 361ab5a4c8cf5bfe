// Our object in our own world of a frame: finds elements, judges whether they can be acted on, and does what is done by script.
(() => {
  'use strict';
  const flags = new Set(('checked selected disabled readonly multiple').split(' '));
  const closing = new Set(('AREA BASE BR COL COMMAND EMBED HR IMG INPUT KEYGEN LINK MENUITEM META PARAM SOURCE TRACK WBR').split(' '));
  const watched = {
    hover: new Set(['mousemove']),
    mouse: new Set(['mousedown', 'mouseup', 'pointerdown', 'pointerup', 'click', 'auxclick', 'dblclick', 'contextmenu']),
  };
  const setInputs = new Set(['color', 'date', 'time', 'datetime-local', 'month', 'range', 'week']);
  const typedInputs = new Set(['', 'email', 'number', 'password', 'search', 'tel', 'text', 'url']);
  // Roles that aria-disabled speaks of.
  const disableable = new Set(('application button composite gridcell group input link menuitem scrollbar separator tab checkbox columnheader ' +
    'combobox grid listbox menu menubar menuitemcheckbox menuitemradio option radio radiogroup row rowheader searchbox select slider spinbutton ' +
    'switch tablist textbox toolbar tree treegrid treeitem').split(' '));
  const inputRoles = {button: 'button', submit: 'button', reset: 'button', image: 'button', checkbox: 'checkbox', radio: 'radio', range: 'slider',
    number: 'spinbutton', search: 'searchbox', hidden: ''};
  const tagRoles = {BUTTON: 'button', TEXTAREA: 'textbox', SELECT: 'combobox', OPTION: 'option', OPTGROUP: 'group', FIELDSET: 'group',
    DETAILS: 'group', TR: 'row', TH: 'columnheader', HR: 'separator'};
  const gone = 'error:notconnected';
  // A property of the document itself: a picture that is named after it hides it.
  const own = name => (Object.getOwnPropertyDescriptor(Document.prototype, name) || Object.getOwnPropertyDescriptor(Node.prototype, name)).get.call(document);

  let target = null; // the element in question
  let guard = null;  // what looks at the events of an action

  const parentOf = e => {
    if (e.parentElement) return e.parentElement;
    const p = e.parentNode;
    return p && p.nodeType === Node.DOCUMENT_FRAGMENT_NODE && p.host || null;
  };
  const cut = (s, n) => {
    if (s.length <= n) return s;
    const all = [...s];
    return all.length > n ? all.slice(0, n - 1).join('') + '…' : s;
  };
  const oneLine = s => s.replace(/\n/g, '↵').replace(/\t/g, '⇆');

  // How an element is shown in a log.
  const preview = e => {
    const name = e.nodeName.toLowerCase();
    const attributes = [];
    for (const a of e.attributes) {
      if (a.name === 'style') continue;
      attributes.push(!a.value && flags.has(a.name) ? ' ' + a.name : ` ${a.name}="${a.value}"`);
    }
    attributes.sort((a, b) => a.length - b.length);
    const open = name + cut(attributes.join(''), 50);
    if (closing.has(e.nodeName)) return oneLine(`<${open}/>`);
    const kids = [...e.childNodes];
    const text = kids.length <= 5 && kids.every(k => k.nodeType === Node.TEXT_NODE) ? e.textContent || '' : '…';
    return oneLine(`<${open}>${cut(text, 50)}</${name}>`);
  };

  // All elements of a selector, those of open shadow roots too.
  const query = selector => {
    const found = [];
    const roots = [document];
    for (let i = 0; i < roots.length; i++) {
      found.push(...roots[i].querySelectorAll(selector));
      for (const e of roots[i].querySelectorAll('*')) if (e.shadowRoot) roots.push(e.shadowRoot);
    }
    return found;
  };

  const isField = e => e.matches('input, textarea, select') || e.isContentEditable;
  // Who answers for an element when its state is asked for.
  const holder = e => isField(e) ? e : e.closest('button, [role=button], [role=checkbox], [role=radio]') || e;
  const labelled = e => {
    e = holder(e);
    if (!e.matches('input, textarea, button, select, [role=button], [role=checkbox], [role=radio]') && !e.isContentEditable) e = e.closest('label') || e;
    return e.nodeName === 'LABEL' ? e.control || e : e;
  };
  const pressed = e => isField(e) ? e : e.closest('button, [role=button], a, [role=link]') || e;

  const hasSize = r => r.width > 0 && r.height > 0;
  const visible = e => {
    const style = getComputedStyle(e);
    if (style.display === 'contents') {
      return [...e.childNodes].some(k => {
        if (k.nodeType === Node.ELEMENT_NODE) return visible(k);
        if (k.nodeType !== Node.TEXT_NODE) return false;
        const range = document.createRange();
        range.selectNode(k);
        return hasSize(range.getBoundingClientRect());
      });
    }
    return e.checkVisibility({checkOpacity: false, checkVisibilityCSS: false}) && style.visibility === 'visible' && hasSize(e.getBoundingClientRect());
  };

  const role = e => {
    const said = (e.getAttribute('role') || '').trim().split(/\s+/)[0];
    if (said) return said;
    if (e.nodeName === 'INPUT') {
      const known = inputRoles[e.type];
      return known !== undefined ? known : e.hasAttribute('list') ? 'combobox' : 'textbox';
    }
    if ((e.nodeName === 'A' || e.nodeName === 'AREA') && e.hasAttribute('href')) return 'link';
    return tagRoles[e.nodeName] || '';
  };
  const disabled = e => {
    if (['BUTTON', 'INPUT', 'SELECT', 'TEXTAREA', 'OPTION', 'OPTGROUP'].includes(e.tagName) && (e.hasAttribute('disabled') || e.closest('fieldset[disabled]'))) return true;
    for (; e; e = parentOf(e)) {
      if (!disableable.has(role(e))) continue;
      const said = (e.getAttribute('aria-disabled') || '').toLowerCase();
      if (said === 'true') return true;
      if (said === 'false') return false;
    }
    return false;
  };

  // The same place in two frames, one after the other. Where nothing is animated the place that it has now is that of the last frame, so that
  // one more is enough, if it does not come too soon for a script that moves things by a timer.
  const enough = 10; // milliseconds
  const stable = (e, strict) => new Promise((resolve, reject) => {
    let last = null, since = 0;
    const look = () => {
      const r = holder(e).getBoundingClientRect();
      if (last && performance.now() - since < enough) return requestAnimationFrame(next);
      if (last) return resolve(last.top === r.top && last.left === r.left && last.width === r.width && last.height === r.height);
      last = r;
      since = performance.now();
      requestAnimationFrame(next);
    };
    const next = () => {
      try {
        look();
      } catch (err) {
        reject(err);
      }
    };
    if (strict || document.getAnimations().length) requestAnimationFrame(next);
    else next();
  });

  // The next frame; a page that draws none is not waited for longer than so many milliseconds.
  const drawn = ms => new Promise(resolve => {
    requestAnimationFrame(resolve);
    setTimeout(resolve, ms);
  });

  const missing = state => ({missing: state});
  const states = async (wanted, strict, still) => {
    const e = target;
    if (wanted.includes('stable') && !still && !await stable(e, strict)) return missing('stable');
    for (const state of wanted) {
      if (state === 'stable') continue;
      const who = state === 'visible' ? e : labelled(e);
      if (!who.isConnected) return gone;
      if (state === 'visible' && !visible(who)) return missing(state);
      if (state !== 'visible' && disabled(who)) return missing('enabled');
      if (state === 'editable' && ['INPUT', 'TEXTAREA', 'SELECT'].includes(who.nodeName) && who.hasAttribute('readonly')) return missing(state);
    }
    return '';
  };
  // What is at a point: '' when it is the element or belongs to it, else what is in the way.
  const blocker = (x, y, e) => {
    const roots = [];
    for (let up = e; up; up = up.host) {
      up = up.getRootNode();
      if (up.nodeType !== Node.DOCUMENT_NODE && !up.host) break;
      roots.push(up);
      if (up.nodeType === Node.DOCUMENT_NODE) break;
    }
    let hit = null;
    for (let i = roots.length - 1; i >= 0; i--) {
      const all = roots[i].elementsFromPoint(x, y);
      const one = roots[i].elementFromPoint(x, y);
      if (one && all[0] && parentOf(one) === all[0] && getComputedStyle(one).display === 'contents') all.unshift(one);
      if (!all[0]) break;
      hit = all[0];
      if (i && hit !== roots[i - 1].host) break;
    }
    const above = [];
    for (; hit && hit !== e; hit = parentOf(hit)) above.push(hit);
    if (hit) return '';
    let text = preview(above[0] || document.documentElement);
    for (let up = e; up; up = parentOf(up)) {
      const i = above.indexOf(up);
      if (i < 0) continue;
      if (i > 1) text += ` from ${preview(above[i - 1])} subtree`;
      break;
    }
    return text;
  };
  const watch = event => {
    if (!guard || !guard.types.has(event.type) || !event.isTrusted) return;
    guard.since = performance.now();
    if (guard.result === undefined) guard.result = blocker(event.clientX, event.clientY, guard.element);
    if (guard.result) {
      event.preventDefault();
      event.stopPropagation();
      event.stopImmediatePropagation();
    }
  };
  // How long the page itself took for an event.
  const heard = event => {
    if (!guard || !guard.types.has(event.type) || !event.isTrusted) return;
    guard.busy += performance.now() - guard.since;
  };
  for (const type of [...watched.hover, ...watched.mouse]) {
    window.addEventListener(type, watch, {capture: true, passive: false});
    window.addEventListener(type, heard, {passive: true});
  }

  const selectAll = e => {
    if (e.nodeName === 'INPUT') {
      e.select();
      e.focus();
      return;
    }
    if (e.nodeName === 'TEXTAREA') {
      e.selectionStart = 0;
      e.selectionEnd = e.value.length;
      e.focus();
      return;
    }
    e.focus();
    const range = document.createRange();
    range.selectNodeContents(e);
    const selection = getSelection();
    if (selection) {
      selection.removeAllRanges();
      selection.addRange(range);
    }
  };
  const changed = e => {
    e.dispatchEvent(new Event('input', {bubbles: true, composed: true}));
    e.dispatchEvent(new Event('change', {bubbles: true}));
  };
  const no = text => ({error: text});
  const enter = value => {
    const e = labelled(target);
    if (e.nodeName === 'INPUT') {
      const type = e.type.toLowerCase();
      if (!setInputs.has(type) && !typedInputs.has(type)) return no(`Input of type "${type}" cannot be filled`);
      if (type === 'number' && isNaN(Number(value.trim()))) return no('Cannot type text into input[type=number]');
      if (setInputs.has(type)) {
        value = value.trim();
        e.focus();
        e.value = value;
        if (e.value !== value) return no('Malformed value');
        changed(e);
        return 'done';
      }
    } else if (e.nodeName !== 'TEXTAREA' && !e.isContentEditable) {
      return no('Element is not an <input>, <textarea> or [contenteditable] element');
    }
    selectAll(e);
    return 'input';
  };
  const choose = wanted => {
    const e = labelled(target);
    if (e.nodeName !== 'SELECT') return no('Element is not a <select> element');
    const chosen = [];
    for (const option of e.options) {
      const fits = w => w === option.value || w === option.label;
      if (!wanted.some(fits)) continue;
      chosen.push(option);
      wanted = e.multiple ? wanted.filter(w => !fits(w)) : [];
      if (!e.multiple) break;
    }
    if (wanted.length) return 'error:optionsnotfound';
    e.value = undefined;
    for (const option of chosen) option.selected = true;
    changed(e);
    return 'done';
  };

  return {
    title: () => own('title'),
    html: () => (own('doctype') ? new XMLSerializer().serializeToString(own('doctype')) : '') + (own('documentElement') ? own('documentElement').outerHTML : ''),
    size: () => ({width: innerWidth, height: innerHeight}),

    // Finds an element and remembers it: how many there are, and how the first ones are shown.
    find(selector) {
      const all = query(selector);
      target = all[0] || null;
      return {n: all.length, shown: all.slice(0, 10).map(preview)};
    },
    count: selector => query(selector).length,
    // The element that was found last, or another.
    target: () => target,
    aim(e) {
      target = e;
    },
    connected: () => !!target && target.isConnected,
    states,
    scroll(how) {
      if (target.nodeType === Node.ELEMENT_NODE) target.scrollIntoView(how);
    },

    // Looks at the events of an action to come; says what is in the way already.
    expect(kind, point) {
      const element = pressed(target);
      if (!element.isConnected) return gone;
      if (point) {
        const text = blocker(point.x, point.y, element);
        if (text) return {blocked: text};
      }
      guard = {types: watched[kind], element, result: undefined, since: 0, busy: 0};
      return '';
    },
    // What was in the way at the first event ('' when nothing was, or nothing happened), and for how many milliseconds the page was busy with the events.
    unexpect() {
      const g = guard;
      guard = null;
      return {blocked: g && g.result || '', busy: g ? g.busy : 0};
    },
    // What is in the way of a frame's element, and where its content begins.
    blocked: (e, x, y) => blocker(x, y, e),
    inset(e) {
      if (!e.isConnected) return null;
      for (let up = e; up; up = parentOf(up)) if (getComputedStyle(up).transform !== 'none') return {transformed: true};
      const s = getComputedStyle(e);
      const px = v => parseInt(v || '', 10) || 0;
      return {left: px(s.borderLeftWidth) + px(s.paddingLeft), top: px(s.borderTopWidth) + px(s.paddingTop)};
    },

    // start: the caret goes to the start of an input that did not have the focus.
    focus(start) {
      const e = target;
      if (!e.isConnected) return gone;
      const active = e.getRootNode().activeElement;
      const had = active === e && document.hasFocus();
      if (e.isContentEditable && !had && active && active.blur) active.blur();
      e.focus();
      e.focus();
      if (start && !had && e.nodeName === 'INPUT') {
        try {
          e.setSelectionRange(0, 0);
        } catch {
          // Some inputs have no selection.
        }
      }
      return 'done';
    },
    async fill(value, force) {
      const wrong = force ? '' : await states(['visible', 'enabled', 'editable']);
      if (wrong) return wrong;
      const empty = labelled(target).value === '';
      const next = enter(value);
      return next === 'input' && !empty ? 'selected' : next;
    },
    drawn,
    async choose(wanted, force) {
      const wrong = force ? '' : await states(['visible', 'enabled']);
      return wrong || choose(wanted);
    },
    // The input that files are set on, by way of its label.
    files() {
      const e = labelled(target);
      return e.nodeName === 'INPUT' && e.type === 'file' ? {many: e.multiple || e.webkitdirectory} : no('Node is not an HTMLInputElement');
    },

    // A drag that a move may start: watched from here to dragStarted().
    watchDrag() {
      let event = null;
      const onDrag = e => {
        event = e;
      };
      window.addEventListener('dragstart', onDrag, {capture: true});
      this.endDrag = () => {
        window.removeEventListener('dragstart', onDrag, {capture: true});
        this.endDrag = null;
        return !!event && !event.defaultPrevented;
      };
    },
    dragStarted() {
      return this.endDrag ? this.endDrag() : false;
    },
    // What the reference does to make a page report.
    show() {
      window.dispatchEvent(new Event('pageshow'));
    },
  };
})()
