// Runs in each document, in our own world: tells that something happens on the page.
(() => {
  const tell = self.browsergym_page_activated;
  if (typeof tell !== 'function') return;
  const report = () => tell('');
  report();
  for (const type of ['focus', 'focusin', 'load', 'pageshow', 'mousemove', 'mouseup', 'mousedown', 'wheel', 'keyup', 'keydown', 'input',
    'touchstart', 'touchend']) {
    window.addEventListener(type, report, {capture: true, passive: true});
  }
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'visible') report();
  }, {capture: true});
})();
