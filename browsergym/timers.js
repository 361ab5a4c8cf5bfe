// Notes when timers of this document are due, of those that go on only the first time, so that the environment can wait for them and for nothing else.
// Pages do not see a difference: a proxy of a native function prints as one, and what they pass goes through untouched. All that is used later was
// taken before the page could replace it.
(() => {
	const {apply} = Reflect, none = [], number = Number, {max} = Math, far = 60000, most = 1000;
	const now = performance.now.bind(performance), yes = Event.prototype.preventDefault;
	const within = Object.getOwnPropertyDescriptor(UIEvent.prototype, 'detail').get;
	const listen = (what, answer) => visualViewport.addEventListener('evalrun.' + what, event => {
		if (answer(event)) apply(yes, event, none);
	});
	const there = new Event('evalrun.timers', {cancelable: true});
	if (!visualViewport.dispatchEvent(there)) return; // a popup's first page is given the window of the empty one before it
	listen('timers', () => true);
	let due = {__proto__: null}, count = 0, intervals = {__proto__: null}, lasting = 0; // by their numbers
	let asked = -Infinity; // when a frame was asked for last
	const forget = id => {
		if (id in due) delete due[id], count--;
		if (id in intervals) delete intervals[id], lasting--;
	};
	const wrap = (name, call) => window[name] = new Proxy(window[name], {__proto__: null, apply: call});
	for (const name of ['setTimeout', 'setInterval']) wrap(name, (f, self, args) => {
		const id = apply(f, self, args), ms = args.length > 1 ? max(0, number(args[1]) || 0) : 0;
		if (ms <= far) {
			if (count >= most) due = {__proto__: null}, count = 0;
			due[id] = now() + ms;
			count++;
		}
		if (name === 'setInterval' && lasting < most) intervals[id] = true, lasting++;
		return id;
	});
	for (const name of ['clearTimeout', 'clearInterval']) wrap(name, (f, self, args) => {
		if (args.length && typeof args[0] === 'number') forget(args[0]);
		return apply(f, self, args);
	});
	wrap('requestAnimationFrame', (f, self, args) => {
		asked = now();
		return apply(f, self, args);
	});
	// Whether a timer is due within a time.
	const busy = ms => {
		const t = now();
		let any = false;
		for (const id in due) {
			if (due[id] < t - 4) delete due[id], count--; else if (due[id] <= t + ms) any = true;
		}
		return any;
	};
	listen('busy', event => busy(apply(within, event, none)));
	// Whether no script of the page can move anything by itself just now.
	listen('still', () => !lasting && now() - asked > 50 && !busy(20));
})();
