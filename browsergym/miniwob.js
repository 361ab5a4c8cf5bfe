// Prepares a page of MiniWoB++: what is shown only to people is taken away, and brought back while the page's own routines run.
(hide, goal) => {
	const core = window.core, whole = s => (s || '').replace(/\s+/g, ' ').trim(), el = id => document.getElementById(id);
	const goals = {
		// The item's name is the class of its icon.
		'click-menu-2': () => {
			const q = el('query');
			if (!q.children.length) return whole(q.textContent);
			return whole(q.childNodes[0].textContent) + ' "' + q.children[0].classList[1] + '" ' + whole(q.childNodes[2].textContent);
		},
		// The colour is shown, not said.
		'use-colorwheel-2': () => {
			const c = el('query').children, rgb = getComputedStyle(c[1]).backgroundColor.match(/\d+/g).slice(0, 3);
			return whole(c[0].textContent) + ' #' + rgb.map(n => Number(n).toString(16).padStart(2, '0')).join('') + ' ' + whole(c[2].textContent);
		},
	};
	if (goals[goal]) core.getUtterance = goals[goal];
	if (!hide) return;
	let query = null;
	const gone = {}, names = ['reward-display', 'click-canvas', 'sync-task-cover'];
	const away = () => {
		core.clearTimer();
		document.body.removeEventListener('click', core.canvasDrawClick);
		query = el('query').cloneNode(true);
		el('query').innerHTML = '';
		for (const n of names) (gone[n] = el(n)).remove();
	};
	const back = () => {
		el('query').innerHTML = query.innerHTML;
		for (const n of names) document.body.appendChild(gone[n]);
		core.createDisplay();
	};
	for (const name of ['getUtterance', 'endEpisode', 'startEpisodeReal']) {
		const original = core[name];
		core[name] = (...a) => {
			back();
			const v = original(...a);
			away();
			return v;
		};
	}
	away();
}
