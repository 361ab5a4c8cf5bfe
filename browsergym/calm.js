// Waits until the document and its images are loaded and, unless it is only opened, nothing of it goes on: no timer is due within the time that is left,
// no animation runs, and it has not changed for two frames. At most so many milliseconds.
(limit, opened) => new Promise(done => {
	const end = performance.now() + limit, timers = Symbol.for('evalrun.busy');
	const waits = w => {
		try {
			if (w[timers] && w[timers](end - performance.now())) return true;
			for (let i = 0; i < w.length && i < 50; i++) if (waits(w[i])) return true;
		} catch { /* of another origin, which says nothing */ }
		return false;
	};
	const moves = () => document.getAnimations().some(a => a.playState === 'running' && a.effect.getComputedTiming().endTime < Infinity);
	const loads = () => document.readyState !== 'complete' || Array.prototype.some.call(document.images, i => !i.complete && i.loading !== 'lazy');
	let changed = false, frames = 0;
	const watch = new MutationObserver(() => { changed = true; });
	watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
	const frame = () => {
		frames = loads() || !opened && (changed || waits(window) || moves()) ? 0 : frames + 1;
		changed = false;
		if (frames < 2 && performance.now() < end) { requestAnimationFrame(frame); return; }
		watch.disconnect();
		done();
	};
	requestAnimationFrame(frame);
})
