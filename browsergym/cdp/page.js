// In the page's world, before its scripts: tells mark_elements.js, which runs in ours, what only the page's shows of elements, handlers and properties that it
// has made. All that it uses was taken before the page could replace it.
(() => {
  'use strict';
  const {apply} = Reflect, none = [], string = String, own = (type, name) => Object.getOwnPropertyDescriptor(type.prototype, name).get;
  const related = own(FocusEvent, 'relatedTarget'), tag = own(Element, 'localName'), yes = Event.prototype.preventDefault;
  const {getAttribute, setAttribute, removeAttribute, hasAttribute} = Element.prototype;
  const html = own(HTMLElement, 'onclick'), others = {svg: own(SVGElement, 'onclick'), math: own(MathMLElement, 'onclick')};
  const values = {__proto__: null, button: own(HTMLButtonElement, 'value'), data: own(HTMLDataElement, 'value'), input: own(HTMLInputElement, 'value'),
    li: own(HTMLLIElement, 'value'), meter: own(HTMLMeterElement, 'value'), option: own(HTMLOptionElement, 'value'), output: own(HTMLOutputElement, 'value'),
    param: own(HTMLParamElement, 'value'), progress: own(HTMLProgressElement, 'value'), select: own(HTMLSelectElement, 'value'),
    textarea: own(HTMLTextAreaElement, 'value')};
  const checks = {__proto__: null, input: own(HTMLInputElement, 'checked')};
  // A property by the browser's own getter, where the element has that, or by what the page has made. What throws has no value.
  const attempt = (e, get, name) => {
    try {
      return get ? apply(get, e, none) : e[name];
    } catch {
      return undefined;
    }
  };
  const handler = e => attempt(e, html) || attempt(e, others.svg) || attempt(e, others.math);
  const valueOf = e => attempt(e, values[apply(tag, e, none)], 'value');
  const checkedOf = e => attempt(e, checks[apply(tag, e, none)], 'checked');
  const listen = (what, answer) => visualViewport.addEventListener('evalrun.' + what, event => {
    try {
      if (answer(apply(related, event, none))) apply(yes, event, none);
    } catch {
      // Of a value that cannot be said.
    }
  });
  // Notes the state of an input where the tree shows it, and says whether the element has a handler of clicks.
  listen('note', e => {
    const value = valueOf(e), checked = checkedOf(e);
    if (value !== undefined) {
      try {
        apply(setAttribute, e, ['value', value]);
      } catch {
        // It has no text.
      }
    }
    if (checked === true) apply(setAttribute, e, ['checked', '']);
    else if (checked !== undefined) apply(removeAttribute, e, ['checked']);
    return handler(e) != null;
  });
  // Whether that state has changed since: no change of it is a change of the document.
  listen('changed', e => {
    const value = valueOf(e), checked = checkedOf(e);
    return value !== undefined && apply(hasAttribute, e, ['value']) && string(value) !== apply(getAttribute, e, ['value']) ||
      checked !== undefined && (checked === true) !== apply(hasAttribute, e, ['checked']);
  });
})();
