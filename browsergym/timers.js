// Notes until when short timers of this document run, so that the environment can wait for them and for nothing else. Pages do not see a difference:
// a proxy of a native function prints as one, and what they pass goes through untouched.
(() => {
	const due = new Map(), short = 1000, most = 1000;
	const {setTimeout: set, clearTimeout: clear} = window, now = performance.now.bind(performance);
	window.setTimeout = new Proxy(set, {apply(f, self, args) {
		const id = Reflect.apply(f, self, args), ms = Math.max(0, Number(args[1]) || 0);
		if (ms <= short) {
			if (due.size >= most) due.clear();
			due.set(id, now() + ms);
		}
		return id;
	}});
	window.clearTimeout = new Proxy(clear, {apply(f, self, args) { due.delete(args[0]); return Reflect.apply(f, self, args); }});
	Object.defineProperty(window, Symbol.for('evalrun.busy'), {value: () => {
		const t = now();
		let busy = false;
		for (const [id, at] of due) {
			if (at < t - 4) due.delete(id); else busy = true;
		}
		return busy;
	}});
})();
