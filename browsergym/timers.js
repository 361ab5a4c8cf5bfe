// Notes when timers of this document are due, of those that go on only the first time, so that the environment can wait for them and for nothing else.
// Pages do not see a difference: a proxy of a native function prints as one, and what they pass goes through untouched.
(() => {
	if (window[Symbol.for('evalrun.busy')]) return; // a popup's first page is given the window of the empty one before it
	const due = new Map(), far = 60000, most = 1000, intervals = new Set();
	const now = performance.now.bind(performance), frame = window.requestAnimationFrame.bind(window);
	let asked = -Infinity; // when a frame was asked for last
	for (const name of ['setTimeout', 'setInterval']) window[name] = new Proxy(window[name], {apply(f, self, args) {
		const id = Reflect.apply(f, self, args), ms = Math.max(0, Number(args[1]) || 0);
		if (ms <= far) {
			if (due.size >= most) due.clear();
			due.set(id, now() + ms);
		}
		if (name === 'setInterval' && intervals.size < most) intervals.add(id);
		return id;
	}});
	for (const name of ['clearTimeout', 'clearInterval']) window[name] = new Proxy(window[name], {apply(f, self, args) {
		due.delete(args[0]);
		intervals.delete(args[0]);
		return Reflect.apply(f, self, args);
	}});
	window.requestAnimationFrame = new Proxy(window.requestAnimationFrame, {apply(f, self, args) {
		asked = now();
		return Reflect.apply(f, self, args);
	}});
	// Whether a timer is due within a time.
	const busy = within => {
		const t = now();
		let any = false;
		for (const [id, at] of due) {
			if (at < t - 4) due.delete(id); else if (at <= t + within) any = true;
		}
		return any;
	};
	// Whether no script of the page can move anything by itself just now.
	busy.still = () => !intervals.size && now() - asked > 50 && !busy(20);
	busy.frame = frame; // the page's own asking is told from ours
	Object.defineProperty(window, Symbol.for('evalrun.busy'), {value: busy});
})();
