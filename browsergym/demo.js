// Shows people what is about to be done: a cursor that goes to a place, and a frame around what is meant. Nothing of it takes clicks, and all of it goes again.
async o => {
	const key = Symbol.for('evalrun.demo'), root = document.documentElement, wait = ms => new Promise(done => setTimeout(done, ms));
	const add = (html, style) => {
		const e = document.createElement('div');
		e.innerHTML = html;
		Object.assign(e.style, {position: 'fixed', zIndex: '2147483647', pointerEvents: 'none', margin: '0', padding: '0', ...style});
		root.append(e);
		return e;
	};
	if (o.move) {
		const from = window[key] || {x: 0, y: 0}, far = Math.hypot(o.x - from.x, o.y - from.y), steps = Math.max(1, Math.round(far / 10));
		const pause = Math.max(10, far / steps / 400 * 1000); // 400 pixels a second
		const cursor = add('<svg width="24" height="24" viewBox="0 0 24 24"><path d="M3 2l7 19 3-8 8-3z" fill="white" stroke="black"/></svg>', {left: from.x + 'px', top: from.y + 'px'});
		for (let i = 1; i <= steps; i++) {
			cursor.style.left = from.x + (o.x - from.x) * i / steps + 'px';
			cursor.style.top = from.y + (o.y - from.y) * i / steps + 'px';
			await wait(pause);
		}
		Object.defineProperty(window, key, {value: {x: o.x, y: o.y}, configurable: true, enumerable: false});
		setTimeout(() => cursor.remove(), 1000);
	}
	if (o.mark) {
		const frame = add('', {left: o.left + 'px', top: o.top + 'px', width: o.width + 'px', height: o.height + 'px', outline: '2px solid ' + o.colour});
		let spread = 8;
		for (let i = 0; i < 5; i++) {
			frame.style.boxShadow = `0 0 ${spread}px ${spread / 2}px ${o.colour}`;
			spread = Math.min(38, spread + 10);
			await wait(200);
		}
		frame.remove();
	}
}
