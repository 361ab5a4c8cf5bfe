// The page contract of MiniWoB++ for pages of one's own: include this, define a function genProblem that makes up the problem with
// Math.random, writes the goal into #query and the page into #area, and calls core.endEpisode with a reward from -1 to 1. Above 0 is success.
//
// More than the contract: a page that defines core.message is told what the agent says to the user. Other tabs of the site may be opened; the episode is
// judged by the page that it began with.
var WOB_REWARD_GLOBAL = 0, WOB_RAW_REWARD_GLOBAL = 0, WOB_REWARD_REASON = null, WOB_DONE_GLOBAL = false, WOB_EPISODE_ID = 0, WOB_TASK_READY = true;
(() => {
	let state = 0;
	Math.seedrandom = seed => { state = seed >>> 0; };
	Math.random = () => {
		state = state + 0x6d2b79f5 | 0;
		let t = Math.imul(state ^ state >>> 15, 1 | state);
		t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
		return ((t ^ t >>> 14) >>> 0) / 4294967296;
	};
	Math.seedrandom(Date.now());
})();
var core = {
	EPISODE_MAX_TIME: 10000, timer: null, countdown: null, ended: 0,

	// For making up problems.
	randi: (from, to) => from + Math.floor(Math.random() * (to - from)),
	pick: list => list[core.randi(0, list.length)],
	shuffle: list => {
		list = [...list];
		for (let i = list.length - 1; i > 0; i--) {
			const j = core.randi(0, i + 1);
			[list[i], list[j]] = [list[j], list[i]];
		}
		return list;
	},
	sample: (list, n) => core.shuffle(list).slice(0, n),

	startEpisode() {
		core.startEpisodeReal();
	},
	startEpisodeReal() {
		WOB_REWARD_GLOBAL = WOB_RAW_REWARD_GLOBAL = 0;
		WOB_REWARD_REASON = null;
		WOB_DONE_GLOBAL = false;
		clearTimeout(core.timer);
		core.clearTimer();
		document.getElementById('sync-task-cover').style.display = 'none';
		genProblem();
		core.began = Date.now();
		core.timer = setTimeout(() => core.endEpisode(-1, false, 'the time is up'), core.EPISODE_MAX_TIME);
		core.countdown = setInterval(core.createDisplay, 1000);
	},
	endEpisode(reward, proportional, reason) {
		if (core.timer === null) return; // one result an episode
		clearTimeout(core.timer);
		core.timer = null;
		core.clearTimer();
		WOB_RAW_REWARD_GLOBAL = WOB_REWARD_GLOBAL = reward;
		if (proportional && reward > 0) WOB_REWARD_GLOBAL = reward * Math.max(0, 1 - (Date.now() - core.began) / core.EPISODE_MAX_TIME);
		WOB_REWARD_REASON = reason === undefined ? null : reason;
		WOB_DONE_GLOBAL = true;
		WOB_EPISODE_ID++;
		document.getElementById('sync-task-cover').style.display = 'block';
	},
	getUtterance() {
		return document.getElementById('query').textContent.replace(/\s+/g, ' ').trim();
	},
	clearTimer() {
		clearInterval(core.countdown);
		core.countdown = null;
	},
	createDisplay() {
		const e = document.getElementById('reward-display');
		if (e) e.textContent = 'Reward: ' + WOB_REWARD_GLOBAL;
	},
	canvasDrawClick() {},
};
// What people see who open the page themselves: a cover that starts an episode, and the reward.
addEventListener('load', () => {
	const add = (tag, id, style) => {
		const e = document.createElement(tag);
		e.id = id;
		e.style.cssText = style;
		return document.body.appendChild(e);
	};
	if (!document.getElementById('query')) document.body.insertAdjacentHTML('afterbegin', '<div id="query"></div>');
	add('div', 'reward-display', 'position:fixed;right:6px;bottom:4px;font:11px sans-serif;color:#777');
	add('canvas', 'click-canvas', 'display:none');
	const cover = add('div', 'sync-task-cover', 'position:fixed;inset:0;background:#fffc;display:block;font:16px sans-serif;text-align:center;padding-top:20vh;cursor:pointer');
	cover.textContent = 'START';
	cover.onclick = core.startEpisode;
	document.body.addEventListener('click', core.canvasDrawClick);
});
