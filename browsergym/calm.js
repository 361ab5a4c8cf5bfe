// Waits until the document is loaded, has no short timer or animation running, and has not changed for two frames; at most so many milliseconds.
limit => new Promise(done => {
	const end = performance.now() + limit, timers = Symbol.for('evalrun.busy');
	const waits = w => {
		try {
			if (w[timers] && w[timers]()) return true;
			for (let i = 0; i < w.length && i < 50; i++) if (waits(w[i])) return true;
		} catch { /* of another origin, which says nothing */ }
		return false;
	};
	const moves = () => document.getAnimations().some(a => a.playState === 'running' && a.effect.getComputedTiming().endTime < Infinity);
	let changed = false, frames = 0;
	const watch = new MutationObserver(() => { changed = true; });
	watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
	const frame = () => {
		frames = changed || document.readyState !== 'complete' || waits(window) || moves() ? 0 : frames + 1;
		changed = false;
		if (frames < 2 && performance.now() < end) { requestAnimationFrame(frame); return; }
		watch.disconnect();
		done();
	};
	requestAnimationFrame(frame);
})
