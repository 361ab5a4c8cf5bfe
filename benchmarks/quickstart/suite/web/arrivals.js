// The parcels that arrived on a day; both pages of the parcel desk know them by the same number.
function arrivals(day) {
	Math.seedrandom(day);
	const letters = 'ABCDEFGHKLMNPRSTUVWXYZ';
	const who = ['Bruno Costa', 'Clara Lind', 'Dmitri Orlov', 'Elena Rossi', 'Farid Aziz', 'Greta Holm', 'Hugo Martin', 'Ida Berg', 'Jun Park', 'Karin Vogel', 'Liam Byrne', 'Mina Sato'];
	return core.sample(who, 9).map(who => ({
		who, shelf: core.pick([...'ABCDEF']) + core.randi(1, 20), code: core.pick([...letters]) + core.pick([...letters]) + '-' + core.randi(1000, 10000),
	}));
}
