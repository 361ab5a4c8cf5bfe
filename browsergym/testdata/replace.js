// Replaces what a page can reach of the browser's own: everything that hangs, by properties and prototypes, on the window or on what syntax alone makes.
// Of objects only each GROUPSth is taken, beginning with the GROUPth.
((mode, group, groups) => {
	const {ownKeys, getOwnPropertyDescriptor, getPrototypeOf, defineProperty, deleteProperty} = Reflect;
	const seen = new Set(), objects = [];
	const meet = o => {
		if ((typeof o === 'object' && o !== null || typeof o === 'function') && !seen.has(o) && !(o instanceof Node)) {
			seen.add(o);
			objects.push(o);
		}
	};
	for (const o of [window, [], '', 0, 0n, true, Symbol(), /x/, () => {}, function* () {}, function* () {}(), async () => {}, async () => {},
		async function* () {}, async function* () {}(), [][Symbol.iterator](), ''[Symbol.iterator](), new Map()[Symbol.iterator](), new Set()[Symbol.iterator](),
		'x'.matchAll(/x/g), new Int8Array(), new Error(), Promise.resolve(), document.querySelectorAll('none'), document.fonts]) meet(Object(o));
	for (let i = 0; i < objects.length; i++) {
		meet(getPrototypeOf(objects[i]));
		for (const key of ownKeys(objects[i])) {
			if (objects[i] === window && typeof key === 'string' && key >= '0' && key <= '99') continue; // a frame
			const d = getOwnPropertyDescriptor(objects[i], key);
			meet(d.value);
			meet(d.get);
			meet(d.set);
		}
	}
	const call = mode === 'throws' ? function () { throw 'replaced'; } : function () {};
	const all = [];
	for (let i = group; i < objects.length; i += groups) {
		const o = objects[i];
		if (typeof o === 'function' && !ownKeys(o).includes('prototype')) continue; // a method, whose properties nobody asks for
		for (const key of ownKeys(o)) {
			const d = getOwnPropertyDescriptor(o, key);
			if (!d.configurable && !d.writable || o === window && ['location', 'document'].includes(key)) continue;
			let as = null; // gone
			if (mode !== 'gone' && 'value' in d) as = {__proto__: null, value: typeof d.value === 'function' ? call : d.value};
			else if (mode !== 'gone') as = {__proto__: null, get: d.get && call, set: d.set && call};
			all.push({o, key, as});
		}
	}
	const hooks = mode === 'hooks' ? [Object.prototype, Array.prototype] : [];
	const names = ['0', '1', '2', '3', 'then', 'get', 'set', 'has', 'apply', 'value', 'done', 'length', 'capture', 'once', 'passive', 'signal', 'cancelable', 'subtree'];
	const count = mode === 'hooks' ? hooks.length * names.length : all.length;
	const r = new XMLHttpRequest(); // tells the test before it is too late
	r.open('GET', '/replaced?' + count, false);
	r.send();
	if (mode === 'hooks') {
		for (let i = 0; i < hooks.length; i++) for (let k = 0; k < names.length; k++) {
			if (!ownKeys(hooks[i]).includes(names[k])) defineProperty(hooks[i], names[k], {__proto__: null, configurable: true, get: undefined, set() {}});
		}
		return;
	}
	for (let i = 0; i < all.length; i++) {
		try {
			if (all[i].as) defineProperty(all[i].o, all[i].key, all[i].as);
			else deleteProperty(all[i].o, all[i].key);
		} catch {
			// It will not be replaced.
		}
	}
})
